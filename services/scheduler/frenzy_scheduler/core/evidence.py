"""What one piece of evidence changes in a job's record, before any arrow is looked for."""

from dataclasses import replace

from frenzy_scheduler.core.facts import (
    Checkpointed,
    Clean,
    Evidence,
    Exited,
    NodeDrained,
    NodeEvidence,
    NodeFenced,
    NodeGone,
    Prepared,
    Progressed,
    Refused,
    Started,
    TimerKind,
    Warm,
)
from frenzy_scheduler.core.outcomes import better_cause, describe
from frenzy_scheduler.core.steps import JobEvent, Rules, Step, release_node, stop, timer, timers
from frenzy_shared.domain.job import PLACED, JobRecord, JobState, RankOutcome, StopReason

_LIVE = frozenset({JobState.RESERVED, JobState.STARTING, JobState.RUNNING})


def record_evidence(record: JobRecord, fact: Evidence, rules: Rules, now_ms: int) -> Step | None:
    """Return what a fact about the record's attempt changes; None when it changes nothing."""
    if isinstance(fact, Checkpointed):
        return _checkpointed(record, fact)
    if record.placement is None or record.state not in PLACED:
        return None
    if isinstance(fact, Progressed):
        return _progressed(record, fact, now_ms)
    return _of_node(record, fact, rules) if fact.node in record.placement.nodes else None


def _of_node(  # noqa: PLR0911 - one return per kind of evidence
    record: JobRecord, fact: NodeEvidence, rules: Rules
) -> Step | None:
    match fact:
        case Prepared():
            return _prepared(record, fact)
        case Warm():
            return None  # only a successor's ranks wait
        case Started():
            return _started(record, fact)
        case Exited():
            return _exited(record, fact)
        case Clean():
            return _clean(record, fact.node, rules)
        case Refused():
            return _refused(record, fact, rules)
        case NodeGone():
            return _gone(record, fact, rules)
        case NodeFenced():
            return _fenced(record, fact, rules)
        case NodeDrained():
            return _drained(record, fact, rules)


def _prepared(record: JobRecord, fact: Prepared) -> Step | None:
    if record.state is not JobState.RESERVED or fact.node in record.prepared:
        return None
    after = replace(
        record,
        prepared=(*record.prepared, fact.node),
        rendezvous=fact.rendezvous or record.rendezvous,
    )
    return Step(before=record, after=after)


def _started(record: JobRecord, fact: Started) -> Step | None:
    if record.state is not JobState.STARTING or fact.node in record.started:
        return None
    return Step(before=record, after=replace(record, started=(*record.started, fact.node)))


def _progressed(record: JobRecord, fact: Progressed, now_ms: int) -> Step | None:
    if record.state is JobState.RESERVED:
        return None
    if record.last_step is not None and fact.step <= record.last_step:
        return None
    loss = record.last_loss if fact.loss is None else fact.loss
    data = {"attempt": record.attempt, "step": fact.step, "loss": fact.loss}
    step = Step(
        before=record,
        after=replace(record, last_step=fact.step, last_loss=loss),
        events=(JobEvent(kind="progressed", data=data),),
    )
    return _first(step, now_ms) if record.last_step is None else step


def _first(step: Step, now_ms: int) -> Step:
    """Add what an attempt's first step tells: it trains, and how long the launch took.

    A successor had its devices before the attempt before it was told to stop: what its launch
    took beside training costs nothing, so its price is counted from there.
    """
    placed_ms, stopping_ms = step.before.placed_ms, step.before.stopping_ms
    after = replace(step.after, stopping_ms=None)
    if placed_ms is not None and stopping_ms is not None and placed_ms <= stopping_ms:
        after = replace(after, move_ms=max(now_ms - stopping_ms, 0))
    elif placed_ms is not None:
        after = replace(after, launch_ms=max(now_ms - placed_ms, 0))
    return replace(step, after=after, clear_timers=timers(step.before, TimerKind.FIRST_REPORT))


def _checkpointed(record: JobRecord, fact: Checkpointed) -> Step | None:
    """Move the pointer that a resume obeys; a complete checkpoint counts after the attempt too."""
    if record.checkpoint_step is not None and fact.step <= record.checkpoint_step:
        return None
    data = {"attempt": record.attempt, "step": fact.step}
    return Step(
        before=record,
        after=replace(record, checkpoint_step=fact.step, checkpoint_shape=record.shape),
        events=(JobEvent(kind="checkpointed", data=data),),
    )


def _exited(record: JobRecord, fact: Exited) -> Step | None:
    if fact.node in record.exited:
        return None
    new = (*fact.outcomes, *_unknown(record, fact))
    outcomes = tuple(sorted((*record.outcomes, *new), key=lambda o: o.rank))
    after = replace(record, exited=(*record.exited, fact.node), outcomes=outcomes)
    steps = [o for o in fact.outcomes if o.last_step is not None]
    last = max(steps, key=lambda o: o.last_step or 0, default=None)
    if last is not None and (last.last_step or 0) >= (record.last_step or 0):
        after = replace(
            after,
            last_step=last.last_step,
            last_loss=record.last_loss if last.loss_last is None else last.loss_last,
        )
    if record.state is JobState.STOPPING and (cause := better_cause(record, fact.outcomes)):
        after = replace(after, reason=cause.reason, message=describe(record, cause))
    return Step(before=record, after=after)


def _give_up(record: JobRecord, node: str, *, quarantine: bool) -> Step | None:
    """Return what takes a node out of the attempt, with its devices."""
    if node in record.clean:
        return None
    releases = release_node(record, node, quarantine=quarantine)
    after = replace(
        record,
        clean=(*record.clean, node),
        owned_devices=record.owned_devices - len(releases),
    )
    return Step(before=record, after=after, releases=releases)


def _clean(record: JobRecord, node: str, rules: Rules) -> Step | None:
    step = _give_up(record, node, quarantine=False)
    if step is None or record.state is JobState.STOPPING:
        return step
    if record.state is JobState.RESERVED:
        why = f"{node} gave the attempt up before it had prepared"
        return step.then(stop(step.after, StopReason.LAUNCH_REFUSED, why, rules))
    if node not in record.exited:  # how its ranks ended is still on the way: wait for it, bounded
        return replace(step, set_timers=(timer(record, TimerKind.STOP, rules.evidence_wait_s),))
    return step


def _refused(record: JobRecord, fact: Refused, rules: Rules) -> Step | None:
    """Stop a launch. What a node says no to after it started is a repetition, not a refusal."""
    begun = fact.node in (*record.started, *record.exited, *record.clean)
    if record.state not in _LIVE or begun:
        return None
    permanent = fact.reason == StopReason.DATA_ERROR  # no node can help missing data
    reason = StopReason.DATA_ERROR if permanent else StopReason.LAUNCH_REFUSED
    why = f"{fact.node} refused to start: {fact.message or fact.reason}"
    return stop(record, reason, why, rules)


def _gone(record: JobRecord, fact: NodeGone, rules: Rules) -> Step | None:
    over = fact.node in record.clean or fact.node in record.exited
    if record.state not in _LIVE or over:
        return None
    return stop(record, StopReason.NODE_LOST, fact.why, rules)


def _fenced(record: JobRecord, fact: NodeFenced, rules: Rules) -> Step | None:
    step = _give_up(record, fact.node, quarantine=not fact.confirmed)
    if step is None or record.state not in _LIVE or fact.node in record.exited:
        return step
    return step.then(stop(step.after, StopReason.NODE_LOST, f"{fact.node} is lost", rules))


def _drained(record: JobRecord, fact: NodeDrained, rules: Rules) -> Step | None:
    if record.state not in _LIVE or fact.node in (*record.exited, *record.clean):
        return None
    return stop(record, StopReason.DRAINED, fact.why, rules)


def _unknown(record: JobRecord, fact: Exited) -> tuple[RankOutcome, ...]:
    """Return outcomes for ranks of the node that its evidence does not mention."""
    told = {outcome.rank for outcome in fact.outcomes}
    devices = record.placement.devices if record.placement else ()
    return tuple(
        RankOutcome(
            rank=rank,
            exit_code=None,
            reason=StopReason.INTERNAL_ERROR,
            message=f"{fact.node} did not say how it ended",
        )
        for rank, ref in enumerate(devices)
        if ref.node == fact.node and rank not in told
    )
