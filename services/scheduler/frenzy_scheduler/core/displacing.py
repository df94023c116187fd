"""Stop a running job for another one, or for a better plan of its own."""

from dataclasses import replace

from frenzy_scheduler.core.facts import Displaced
from frenzy_scheduler.core.steps import JobEvent, Rules, Step, stop
from frenzy_shared.domain.job import JobRecord, JobState, StopReason


def displace(record: JobRecord, fact: Displaced, rules: Rules, now_ms: int) -> Step | None:
    """Return the step that tells a running job to save and go; None when it runs no more."""
    if record.state is not JobState.RUNNING:
        return None
    step = stop(record, StopReason.PREEMPTED, fact.why, rules)
    after = replace(step.after, preemptions=record.preemptions + 1, stopping_ms=now_ms)
    data = {"attempt": record.attempt, "step": record.last_step, "message": fact.why, **fact.data}
    return replace(step, after=after, events=(JobEvent(kind="preempted", data=data), *step.events))


def timed(record: JobRecord, now_ms: int) -> JobRecord:
    """Return a displaced record with the measured time from the order to stop to free devices."""
    if record.stopping_ms is None or record.reason != StopReason.PREEMPTED:
        return record
    return replace(record, save_ms=max(now_ms - record.stopping_ms, 0))


def attained(record: JobRecord, now_ms: int) -> JobRecord:
    """Return a record with the time added up that its attempt, now over, had devices."""
    devices = len(record.placement.devices) if record.placement else 0
    held_ms = max(now_ms - record.placed_ms, 0) if record.placed_ms is not None else 0
    return replace(record, attained_device_ms=record.attained_device_ms + devices * held_ms)


def completed(record: JobRecord) -> bool:
    """Tell whether every rank of the attempt trained to the end."""
    ranks = len(record.placement.devices) if record.placement else 0
    done = [o.rank for o in record.outcomes if o.reason is StopReason.COMPLETED]
    return ranks > 0 and len(done) == ranks == len(record.outcomes)


def kept(record: JobRecord) -> str:
    """Say what of the attempt's training is in a checkpoint."""
    trained, saved = record.last_step, record.checkpoint_step
    if trained is None:
        return "it had not trained yet" if saved is None else f"it resumes from step {saved}"
    if saved is None:
        return f"it had saved no checkpoint: all {trained} steps are lost"
    if saved < trained:
        return f"its last checkpoint is of step {saved}: {trained - saved} steps are lost"
    return f"it saved step {saved}, nothing is lost"
