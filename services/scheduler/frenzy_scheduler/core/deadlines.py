"""What happens when a job does not get on in time."""

from frenzy_scheduler.core.facts import TimerKind
from frenzy_scheduler.core.steps import JobEvent, Rules, Step, stop, timer
from frenzy_shared.domain.job import PLACED, JobRecord, JobState, StopReason


def timer_due(  # noqa: PLR0911 - one return per timer
    record: JobRecord, kind: TimerKind, rules: Rules
) -> Step | None:
    """Return what a due timer of the record's attempt changes; None when it no longer matters."""
    if kind is TimerKind.REPLAN:
        return _ask_again(record, rules)
    if record.placement is None or record.state not in PLACED:
        return None
    match kind, record.state:
        case TimerKind.PREPARE, JobState.RESERVED:
            late = _missing(record, record.prepared)
            why = f"{late} had not prepared after {rules.prepare_timeout_s:.0f} s"
            return stop(record, StopReason.START_TIMEOUT, why, rules)
        case TimerKind.GO, JobState.STARTING:
            late = _missing(record, (*record.started, *record.exited))
            why = f"{late} had not started its ranks after {rules.go_timeout_s:.0f} s"
            return stop(record, StopReason.START_TIMEOUT, why, rules)
        case TimerKind.FIRST_REPORT, JobState.RUNNING if record.last_step is None:
            why = f"no training step was reported within {rules.first_report_timeout_s:.0f} s"
            return stop(record, StopReason.START_TIMEOUT, why, rules)
        case TimerKind.MAX_DURATION, JobState.RESERVED | JobState.STARTING | JobState.RUNNING:
            why = f"it ran for max_duration ({rules.max_duration_s or 0:.0f} s)"
            return stop(record, StopReason.DEADLINE_EXCEEDED, why, rules)
        case TimerKind.STOP, JobState.STOPPING:
            again = timer(record, TimerKind.STOP, 2 * rules.stop_grace_s)
            return Step(before=record, after=record, set_timers=(again,))
        case TimerKind.STOP, JobState.STARTING | JobState.RUNNING:
            return _silent_end(record, rules)
        case _:
            return None


def _ask_again(record: JobRecord, rules: Rules) -> Step | None:
    """Announce once more that the job needs new plans, in case nobody heard it."""
    if record.state is not JobState.SUBMITTED:
        return None
    data = {"attempt": record.attempt, "reason": record.reason, "message": record.message}
    return Step(
        before=record,
        after=record,
        events=(JobEvent(kind="replanned", data=data),),
        set_timers=(timer(record, TimerKind.REPLAN, rules.replan_timeout_s),),
    )


def _silent_end(record: JobRecord, rules: Rules) -> Step | None:
    silent = sorted(set(record.clean) - set(record.exited))
    if not silent:
        return None
    why = f"{', '.join(silent)} never said how its ranks ended"
    return stop(record, StopReason.INTERNAL_ERROR, why, rules)


def _missing(record: JobRecord, seen: tuple[str, ...]) -> str:
    nodes = record.placement.nodes if record.placement else ()
    return ", ".join(node for node in nodes if node not in seen) or "a node"
