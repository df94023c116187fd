"""The life of a placed job: which arrow follows from what is known.

``react`` records one fact and takes the arrow that follows, if any. ``settle`` takes the arrow
that follows from the record alone; calling it until it answers None brings a job as far as its
facts allow, whatever was lost between. Facts may come twice, late, or in any order.
"""

from dataclasses import replace

from frenzy_scheduler.core.deadlines import timer_due
from frenzy_scheduler.core.displacing import displace
from frenzy_scheduler.core.endings import end
from frenzy_scheduler.core.evidence import record_evidence
from frenzy_scheduler.core.facts import Displaced, Fact, TimerDue, TimerKind
from frenzy_scheduler.core.outcomes import describe, worst
from frenzy_scheduler.core.steps import Rules, Step, move, stop, timer, timers
from frenzy_scheduler.core.succession import (
    drop,
    make_way,
    newest_attempt,
    succeeding,
    successor_fact,
    take_over,
    unwanted,
)
from frenzy_shared.domain.continuation import PlanShape
from frenzy_shared.domain.job import PLACED, TERMINAL, JobRecord, JobState, StopReason
from frenzy_shared.domain.placement import Placement
from frenzy_shared.state.port import Claim, Timer


def reserve(
    record: JobRecord, placement: Placement, rules: Rules, *, shape: PlanShape | None, now_ms: int
) -> Step:
    """Return the step that claims all devices of a placement and opens a new attempt.

    ``shape`` is of the placement's plan: what the attempt's checkpoints are bound to.
    """
    count = len(placement.devices)
    after = replace(
        record,
        state=JobState.RESERVED,
        attempt=newest_attempt(record) + 1,
        placement=placement,
        owned_devices=count,
        prepared=(),
        started=(),
        exited=(),
        clean=(),
        outcomes=(),
        rendezvous="",
        last_step=None,
        last_loss=None,
        shape=shape,
        placed_ms=now_ms,
        successor=None,
        not_before_ms=0,
        reason="",
        message=f"{count} x {placement.kind} on {', '.join(placement.nodes)}, "
        f"plan {placement.plan}",
    )
    step = move(
        record,
        after,
        set_timers=(timer(after, TimerKind.PREPARE, rules.prepare_timeout_s),),
        clear_timers=timers(record, TimerKind.BACKOFF),
    )
    claims = tuple(
        Claim(node=ref.node, device=ref.device, epoch=ref.epoch) for ref in placement.devices
    )
    return replace(step, claims=claims)


def react(record: JobRecord, attempt: int, fact: Fact, rules: Rules, now_ms: int) -> Step | None:
    """Return what a fact about one attempt changes; None when it is old, known or too late."""
    if record.state in TERMINAL:
        return None
    if record.successor is not None and record.successor.attempt == attempt:
        step = successor_fact(record, fact, rules, now_ms)
    elif record.attempt != attempt:
        return None
    elif isinstance(fact, TimerDue):
        step = timer_due(record, fact.kind, rules)
    elif isinstance(fact, Displaced):
        step = displace(record, fact, rules, now_ms)
    else:
        step = record_evidence(record, fact, rules, now_ms)
    if step is None or step.moves:
        return step
    follow = settle(step.after, rules, now_ms)
    return step if follow is None else step.then(follow)


def settle(  # noqa: PLR0911 - one return per state
    record: JobRecord, rules: Rules, now_ms: int
) -> Step | None:
    """Return the arrow that the record's own facts call for; None when it must wait."""
    if record.placement is None or record.state not in PLACED:
        return None
    nodes = frozenset[str](record.placement.nodes)
    if record.state is JobState.STOPPING:
        return _leave(record, nodes, rules, now_ms)
    if (failure := worst(record.outcomes)) is not None:
        return stop(record, failure.reason, describe(record, failure), rules)
    if record.state is JobState.STARTING:
        return _run(record, nodes, rules, now_ms)
    if nodes <= set(record.exited):
        return stop(record, StopReason.COMPLETED, "every rank completed", rules)
    if record.state is JobState.RUNNING:
        return make_way(record, rules, now_ms)
    return _launch(record, nodes, rules) if record.state is JobState.RESERVED else None


def _leave(record: JobRecord, nodes: frozenset[str], rules: Rules, now_ms: int) -> Step | None:
    """Return what follows for a job that stops: its end, or its successor, once it is clean."""
    successor = succeeding(record)
    if successor is not None and (why := unwanted(record)):
        return drop(record, why, now_ms)
    if not nodes <= set(record.clean):
        return None
    if successor is not None:
        return take_over(record, rules, now_ms)
    if record.successor is not None and not record.successor.gone:
        return None
    return end(record, rules, now_ms)


def _launch(record: JobRecord, nodes: frozenset[str], rules: Rules) -> Step | None:
    if not nodes <= set(record.prepared):
        return None
    return move(
        record,
        replace(record, state=JobState.STARTING),
        clear_timers=timers(record, TimerKind.PREPARE),
        set_timers=(timer(record, TimerKind.GO, rules.go_timeout_s),),
    )


def _run(record: JobRecord, nodes: frozenset[str], rules: Rules, now_ms: int) -> Step | None:
    if not nodes <= {*record.started, *record.exited}:
        return None
    started_ms = now_ms if record.started_ms is None else record.started_ms
    due: list[Timer] = []
    if rules.reports and record.last_step is None:
        due.append(timer(record, TimerKind.FIRST_REPORT, rules.first_report_timeout_s))
    if rules.max_duration_s is not None:
        left_s = rules.max_duration_s - (now_ms - started_ms) / 1000
        due.append(timer(record, TimerKind.MAX_DURATION, max(left_s, 0.001)))
    return move(
        record,
        replace(record, state=JobState.RUNNING, started_ms=started_ms, refusals=0),
        clear_timers=timers(record, TimerKind.GO),
        set_timers=tuple(due),
    )
