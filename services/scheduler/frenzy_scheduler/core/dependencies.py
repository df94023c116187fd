"""Jobs that wait for other jobs: whether they may start, must wait, or never can."""

from collections.abc import Iterable, Mapping

from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import TERMINAL, JobRecord, JobState, PendingReason
from frenzy_shared.domain.placement import Unplaceable

Found = Mapping[JobId, JobRecord | None]


def blocked(record: JobRecord, found: Found) -> Unplaceable | None:
    """Return why a queued job must not start whatever is idle: held back, or waiting for jobs."""
    if record.held_by:
        message = f"held back by {record.held_by}; frenzy release {record.id} lets it start"
        return Unplaceable(reason=PendingReason.HELD.value, message=message)
    return unmet(record, found)


def unmet(record: JobRecord, found: Found) -> Unplaceable | None:
    """Return why the job must wait for others; None when it need not.

    ``found`` has the records of all that it waits for, None for one that the store lost.
    """
    if why := broken(record, found):
        return Unplaceable(reason=PendingReason.DEPENDENCY_NOT_MET.value, message=why)
    succeed, end = _unfinished(record.depends_on, found), _unfinished(record.after, found)
    texts = [f"starts when these have succeeded: {succeed}"] if succeed else []
    texts += [f"starts when these are over: {end}"] if end else []
    if not texts:
        return None
    message = "; ".join(texts)
    return Unplaceable(reason=PendingReason.DEPENDENCY_NOT_MET.value, message=message)


def broken(record: JobRecord, found: Found) -> str:
    """Say why the job can never start; "" while it can."""
    for job in record.depends_on:
        other = found[job]
        if other is None:
            return f"job {job}, which it depends on, is no longer known"
        if other.state in TERMINAL and other.state is not JobState.SUCCEEDED:
            return f"job {other.name} ({job}), which it depends on, is {other.state}"
    return ""


def _unfinished(jobs: Iterable[JobId], found: Found) -> str:
    others = [found[job] for job in jobs]
    return ", ".join(
        f"{other.name} ({other.id}) is {other.state}"
        for other in others
        if other is not None and other.state not in TERMINAL
    )
