"""A running job's next attempt, made ready on other devices while the present one trains.

Make before break: the successor claims its devices, its ranks start and wait. Only when all of
them wait is the present attempt told to save and go; when it is gone the successor takes over and
goes on from its checkpoint. Whatever happens to a successor before that costs the job nothing: it
is dropped, which counts as no retry, and the job goes on where it is.
"""

from dataclasses import replace

from frenzy_scheduler.core.displacing import attained, completed, displace, timed
from frenzy_scheduler.core.facts import (
    Clean,
    Displaced,
    Exited,
    Fact,
    NodeDrained,
    NodeFenced,
    NodeGone,
    Prepared,
    Refused,
    TimerDue,
    TimerKind,
    Warm,
)
from frenzy_scheduler.core.outcomes import worst
from frenzy_scheduler.core.steps import JobEvent, Rules, Step, move, release_node, timer, timers
from frenzy_shared.domain.continuation import PlanShape
from frenzy_shared.domain.job import JobRecord, JobState, StopReason, Successor
from frenzy_shared.domain.placement import Placement
from frenzy_shared.state.port import Claim


def newest_attempt(record: JobRecord) -> int:
    """Return the highest attempt that was ever opened, a dropped successor's included."""
    return record.attempt if record.successor is None else record.successor.attempt


def succeeding(record: JobRecord) -> Successor | None:
    """Return the successor that may still take over."""
    successor = record.successor
    return None if successor is None or successor.dropped else successor


def as_successor(record: JobRecord) -> JobRecord:
    """Return the record as if its successor, which it must have, were the attempt."""
    successor = _successor(record)
    return replace(
        record,
        attempt=successor.attempt,
        placement=successor.placement,
        shape=successor.shape,
        placed_ms=successor.placed_ms,
        prepared=successor.prepared,
        clean=successor.clean,
        rendezvous=successor.rendezvous,
    )


def open_successor(
    record: JobRecord,
    placement: Placement,
    why: str,
    rules: Rules,
    *,
    shape: PlanShape | None,
    now_ms: int,
) -> Step:
    """Return the step that claims a successor's devices while the job trains on others."""
    attempt, count = newest_attempt(record) + 1, len(placement.devices)
    where = f"{count} x {placement.kind} on {', '.join(placement.nodes)}"
    message = f"attempt {attempt} gets ready on {where} while it trains; then it is {why}"
    successor = Successor(
        attempt=attempt, placement=placement, shape=shape, why=why, placed_ms=now_ms
    )
    after = replace(
        record,
        successor=successor,
        owned_devices=record.owned_devices + count,
        message=message,
    )
    return Step(
        before=record,
        after=after,
        events=(_event(attempt, message),),
        claims=tuple(
            Claim(node=ref.node, device=ref.device, epoch=ref.epoch) for ref in placement.devices
        ),
        claim_attempt=attempt,
        set_timers=(timer(as_successor(after), TimerKind.WARM, rules.warm_timeout_s),),
    )


def successor_fact(  # noqa: PLR0911 - one return per kind of fact
    record: JobRecord, fact: Fact, rules: Rules, now_ms: int
) -> Step | None:
    """Return what a fact about the successor changes; None when it changes nothing."""
    successor = _successor(record)
    match fact:
        case Clean() | NodeFenced():
            return _give_up(record, fact, now_ms)
        case _ if successor.dropped:
            return None
        case Prepared() | Warm():
            return _nearer(record, fact)
        case Refused():
            return drop(record, f"{fact.node} refused: {fact.message or fact.reason}", now_ms)
        case Exited():
            return drop(record, _how_it_ended(fact), now_ms)
        case NodeGone() | NodeDrained():
            return drop(record, fact.why, now_ms)
        case TimerDue(kind=TimerKind.WARM) if not successor.ready:
            return drop(record, f"not ready after {rules.warm_timeout_s:.0f} s", now_ms)
        case _:
            return None


def drop(record: JobRecord, why: str, now_ms: int) -> Step:
    """Return the step after which the successor never takes over; its nodes end its ranks."""
    successor = replace(_successor(record), dropped=why, dropped_ms=now_ms)
    message = f"attempt {successor.attempt} on {', '.join(successor.placement.nodes)} is given up"
    stays = record.state is JobState.RUNNING
    told = f"{message}: {why}{'; training goes on' if stays else ''}"
    return Step(
        before=record,
        after=replace(record, successor=successor, message=told if stays else record.message),
        events=(_event(successor.attempt, told),),
        clear_timers=timers(as_successor(record), TimerKind.WARM),
    )


def make_way(record: JobRecord, rules: Rules, now_ms: int) -> Step | None:
    """Return the step that stops the present attempt for its successor; None before all wait."""
    successor = succeeding(record)
    if successor is None or not successor.ready or record.exited:
        return None
    data: dict[str, object] = {"for": [], "resized": True, "successor": successor.attempt}
    step = displace(record, Displaced(why=successor.why, data=data), rules, now_ms)
    if step is None:
        return None
    return replace(
        step, clear_timers=(*step.clear_timers, *timers(as_successor(record), TimerKind.WARM))
    )


def unwanted(record: JobRecord) -> str:
    """Say why a job that stops cannot go on with its successor; "" while it can."""
    successor = _successor(record)
    if record.reason != StopReason.PREEMPTED:
        return f"the job stops ({record.reason})"
    if not successor.ready:
        return "it was not ready when the job had to make way"
    if completed(record):
        return "the job trained to its end"
    saved = record.placement is not None and set(record.placement.nodes) <= set(record.clean)
    other = record.checkpoint_step is not None and record.checkpoint_shape != record.shape
    if saved and other:  # the one that it resumed from: it did not manage to save its own
        return f"the last checkpoint was made under {record.checkpoint_shape}"
    return ""


def take_over(record: JobRecord, rules: Rules, now_ms: int) -> Step:
    """Return the arrow on which the successor becomes the attempt and is told to go on."""
    successor = _successor(record)
    count, kind = len(successor.placement.devices), successor.placement.kind
    after = replace(
        as_successor(attained(timed(record, now_ms), now_ms)),
        state=JobState.STARTING,
        owned_devices=count,
        started=(),
        exited=(),
        outcomes=(),
        last_step=None,
        last_loss=None,
        successor=None,
        reason="",
        message=f"goes on with {count} x {kind} on {', '.join(successor.placement.nodes)}, "
        f"plan {successor.placement.plan}, ready before attempt {record.attempt} had ended",
    )
    return move(
        record,
        after,
        clear_timers=timers(record, TimerKind.STOP),
        set_timers=(timer(after, TimerKind.GO, rules.go_timeout_s),),
    )


def _nearer(record: JobRecord, fact: Prepared | Warm) -> Step | None:
    successor = _successor(record)
    known = successor.prepared if isinstance(fact, Prepared) else successor.warm
    if fact.node in known or fact.node not in successor.placement.nodes:
        return None
    if isinstance(fact, Prepared):
        successor = replace(
            successor,
            prepared=(*known, fact.node),
            rendezvous=fact.rendezvous or successor.rendezvous,
        )
    else:
        successor = replace(successor, warm=(*known, fact.node))
    return Step(before=record, after=replace(record, successor=successor))


def _give_up(record: JobRecord, fact: Clean | NodeFenced, now_ms: int) -> Step | None:
    """Release what the successor holds on a node; it does not take over without it."""
    successor, node = _successor(record), fact.node
    if node in successor.clean or node not in successor.placement.nodes:
        return None
    quarantine = isinstance(fact, NodeFenced) and not fact.confirmed
    releases = release_node(as_successor(record), node, quarantine=quarantine)
    after = replace(
        record,
        successor=replace(successor, clean=(*successor.clean, node)),
        owned_devices=record.owned_devices - len(releases),
    )
    step = Step(before=record, after=after, releases=releases)
    if successor.dropped:
        return step
    return step.then(drop(after, f"{node} gave it up", now_ms))


def _how_it_ended(fact: Exited) -> str:
    cause = worst(fact.outcomes)
    if cause is None:
        return f"its ranks on {fact.node} ended"
    return f"rank {cause.rank} on {fact.node}: {cause.message or cause.reason}"


def _event(attempt: int, message: str) -> JobEvent:
    return JobEvent(kind="moving", data={"attempt": attempt, "message": message})


def _successor(record: JobRecord) -> Successor:
    if record.successor is None:
        raise ValueError(f"job {record.id} has no successor")
    return record.successor
