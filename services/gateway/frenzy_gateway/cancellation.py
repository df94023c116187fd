"""What cancelling means in each state. Pure."""

from typing import Any

from frenzy_shared.domain.job import JobRecord, JobState, StopReason
from frenzy_shared.domain.transitions import CANCEL_REASONS, transition
from frenzy_shared.errors import InvalidState
from frenzy_shared.messages import subjects
from frenzy_shared.state.port import Change, OutboxMessage

_WAITING = (JobState.SUBMITTED, JobState.QUEUED)
_REASON = StopReason.CANCELLED_BY_USER
_DECIDED = CANCEL_REASONS | {StopReason.COMPLETED}


def settled(record: JobRecord) -> bool:
    """Tell whether a cancel has nothing left to do.

    A job that is stopping for another cause may yet be queued again (a lost node, a retry), so
    only a completed or cancelled one is settled.

    Raises:
        InvalidState: the job has finished otherwise.
    """
    if record.state in (JobState.SUCCEEDED, JobState.FAILED):
        raise InvalidState(f"job {record.id} has already {record.state.lower()}")
    if record.state is JobState.STOPPING:
        return record.reason in _DECIDED
    return record.state is JobState.CANCELLED


def cancel_change(record: JobRecord, by: str, now_ms: int) -> Change:
    """Return the transition that cancels a job which is not settled."""
    target = JobState.CANCELLED if record.state in _WAITING else JobState.STOPPING
    message = f"cancelled by {by}"
    patch: dict[str, Any] = {"state": target, "reason": _REASON, "message": message}
    if target is JobState.CANCELLED:
        patch["finished_ms"] = now_ms
    event = (
        "stopping"  # it was stopping already: only the reason changes
        if record.state is JobState.STOPPING
        else transition(record.state, target).event
    )
    announcement = OutboxMessage(
        subject=subjects.job_event(record.project, event, record.id),
        type=event,
        data={"reason": _REASON, "message": message, "by": by},
    )
    return Change(
        entity=f"job:{record.id}",
        expect_version=record.version,
        allowed_from=frozenset({record.state}),
        patch=patch,
        documents={"pending": None} if target is JobState.CANCELLED else {},
        outbox=(announcement,),
    )
