"""Holding a waiting job back, and letting it go. Pure."""

from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.errors import InvalidState
from frenzy_shared.messages import subjects
from frenzy_shared.state.port import Change, OutboxMessage

_WAITING = frozenset({JobState.SUBMITTED, JobState.QUEUED})


def hold_change(record: JobRecord, by: str) -> Change | None:
    """Return the change that holds a job back for ``by``; None when somebody does already.

    Raises:
        InvalidState: the job no longer waits.
    """
    _require_waiting(record)
    return None if record.held_by else _change(record, by, "held", by)


def release_change(record: JobRecord, by: str) -> Change | None:
    """Return the change that lets a job start again; None when nobody holds it back.

    Raises:
        InvalidState: the job no longer waits.
    """
    _require_waiting(record)
    return _change(record, "", "released", by) if record.held_by else None


def _require_waiting(record: JobRecord) -> None:
    if record.state not in _WAITING:
        raise InvalidState(
            f"job {record.id} is {record.state}; only a waiting job can be held back or released"
        )


def _change(record: JobRecord, held_by: str, event: str, by: str) -> Change:
    announcement = OutboxMessage(
        subject=subjects.job_event(record.project, event, record.id), type=event, data={"by": by}
    )
    return Change(
        entity=f"job:{record.id}",
        expect_version=record.version,
        allowed_from=frozenset({record.state}),
        patch={"held_by": held_by},
        outbox=(announcement,),
    )
