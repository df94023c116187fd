"""Where a job goes when its attempt is over on every node."""

from dataclasses import replace
from typing import Final

from frenzy_scheduler.core.displacing import attained, completed, kept, timed
from frenzy_scheduler.core.facts import TimerKind
from frenzy_scheduler.core.outcomes import worst
from frenzy_scheduler.core.steps import JobEvent, Rules, Step, move, timer, timers
from frenzy_shared.domain.job import JobRecord, JobState, StopReason
from frenzy_shared.domain.transitions import CANCEL_REASONS, REQUEUE_REASONS
from frenzy_shared.units import format_bytes

# Trying again cannot help: the limit, the data or the cluster would have to change.
_HOPELESS: Final = frozenset(
    {
        StopReason.DEADLINE_EXCEEDED,
        StopReason.DATA_ERROR,
        StopReason.LOG_QUOTA_EXCEEDED,
        StopReason.DISK_QUOTA_EXCEEDED,
        StopReason.NO_FEASIBLE_PLAN,
    }
)


def end(  # noqa: PLR0911 - one return per kind of reason
    record: JobRecord, rules: Rules, now_ms: int
) -> Step:
    """Return the last arrow of an attempt; ``record`` is STOPPING and clean on every node."""
    reason = StopReason(record.reason)
    if reason is StopReason.COMPLETED:
        return _finish(record, JobState.SUCCEEDED, _success(record), now_ms)
    if reason in CANCEL_REASONS:
        return _finish(record, JobState.CANCELLED, record.message, now_ms)
    if reason in REQUEUE_REASONS:
        if completed(record):  # it was over before the order to stop reached it
            return _finish(record, JobState.SUCCEEDED, _success(record), now_ms)
        note = f"{kept(record)}; queued again, no retry is counted"
        return _requeue(record, timed(record, now_ms), 0.0, note, now_ms)
    if reason is StopReason.LAUNCH_REFUSED:
        wait_s = backoff_s(record.refusals, rules)
        counted = replace(record, refusals=record.refusals + 1)
        return _requeue(record, counted, wait_s, f"tried again in {wait_s:.0f} s", now_ms)
    if reason is StopReason.CUDA_OUT_OF_MEMORY:
        return _out_of_memory(record, rules, now_ms)
    if reason in _HOPELESS:
        return _finish(record, JobState.FAILED, record.message, now_ms)
    return _retry(record, rules, now_ms)


def backoff_s(failures: int, rules: Rules) -> float:
    """Return the wait after one more failure: the base, doubled for each earlier one, bounded."""
    doublings = min(failures, 32)  # far beyond any bound, and still a finite float
    return min(rules.backoff_base_s * 2.0**doublings, rules.backoff_max_s)


def _retry(record: JobRecord, rules: Rules, now_ms: int) -> Step:
    if record.retries >= rules.max_retries:
        used = f"{record.retries} of {rules.max_retries} retries used"
        return _finish(record, JobState.FAILED, f"{record.message} ({used})", now_ms)
    wait_s = backoff_s(record.retries, rules)
    counted = replace(record, retries=record.retries + 1)
    note = f"retry {counted.retries} of {rules.max_retries} in {wait_s:.0f} s"
    return _requeue(record, counted, wait_s, note, now_ms)


def _out_of_memory(record: JobRecord, rules: Rules, now_ms: int) -> Step:
    oom = JobEvent(kind="oom", data=_oom_data(record))
    if record.oom_retries >= rules.max_oom_retries:
        used = f"{record.oom_retries} of {rules.max_oom_retries} new plans tried"
        step = _finish(record, JobState.FAILED, f"{record.message} ({used})", now_ms)
        return replace(step, events=(oom, *step.events))
    after = replace(  # the placement stays: MARP reads from it which plan was too large
        record,
        owned_devices=0,
        shape=None if record.checkpoint_step is None else record.shape,  # nothing to go on from
        state=JobState.SUBMITTED,
        oom_retries=record.oom_retries + 1,
        message=f"attempt {record.attempt} ran out of memory: {record.message}; "
        f"planning again ({record.oom_retries + 1} of {rules.max_oom_retries})",
    )
    return move(
        record,
        after,
        extra=(oom,),
        set_timers=(timer(record, TimerKind.REPLAN, rules.replan_timeout_s),),
        clear_timers=_attempt_timers(record),
    )


def _requeue(record: JobRecord, counted: JobRecord, wait_s: float, note: str, now_ms: int) -> Step:
    after = replace(
        _released(counted, now_ms),
        state=JobState.QUEUED,
        not_before_ms=now_ms + round(wait_s * 1000) if wait_s else 0,
        message=f"attempt {record.attempt} ended: {record.message}; {note}",
    )
    return move(
        record,
        after,
        set_timers=(timer(record, TimerKind.BACKOFF, wait_s),) if wait_s else (),
        clear_timers=_attempt_timers(record),
    )


def _finish(record: JobRecord, state: JobState, message: str, now_ms: int) -> Step:
    after = replace(
        record, state=state, message=message, owned_devices=0, finished_ms=now_ms, not_before_ms=0
    )
    return move(record, after, clear_timers=_attempt_timers(record))


def _released(record: JobRecord, now_ms: int) -> JobRecord:
    """Return the record without devices, the time that it had them added up."""
    return replace(attained(record, now_ms), placement=None, owned_devices=0)


def _attempt_timers(record: JobRecord) -> tuple[str, ...]:
    return timers(
        record,
        TimerKind.PREPARE,
        TimerKind.GO,
        TimerKind.FIRST_REPORT,
        TimerKind.STOP,
        TimerKind.MAX_DURATION,
    )


def _success(record: JobRecord) -> str:
    ranks = len(record.placement.devices) if record.placement else len(record.outcomes)
    nodes = ", ".join(record.placement.nodes) if record.placement else "no node"
    step = f" at step {record.last_step}" if record.last_step else ""
    loss = f", loss {record.last_loss:.4g}" if record.last_loss is not None else ""
    return f"{ranks} rank{'s' if ranks != 1 else ''} completed on {nodes}{step}{loss}"


def _oom_data(record: JobRecord) -> dict[str, object]:
    """Return what MARP corrects its estimate with."""
    outcome = worst(record.outcomes)
    peak = outcome.peak_allocated_bytes if outcome else None
    return {
        "attempt": record.attempt,
        "plan": record.placement.plan if record.placement else "",
        "kind": record.placement.kind if record.placement else "",
        "rank": outcome.rank if outcome else None,
        "peak_allocated_bytes": peak,
        "peak_reserved_bytes": outcome.peak_reserved_bytes if outcome else None,
        "message": f"{record.message}; peak {format_bytes(peak)}" if peak else record.message,
    }
