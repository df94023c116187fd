"""The life of a job as data: every legal arrow, and the event that announces it.

The documentation's diagram, the in-memory store, the simulator's checks and the tests are made
from this table.
"""

from dataclasses import dataclass
from typing import Final

from frenzy_shared.domain.job import JobState, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One arrow. ``event`` is the job event's short type; ``when`` a phrase for the diagram."""

    source: JobState
    target: JobState
    event: str
    when: str


def _arrow(source: JobState, target: JobState, event: str, when: str) -> Transition:
    return Transition(source=source, target=target, event=event, when=when)


TRANSITIONS: Final = (
    _arrow(JobState.SUBMITTED, JobState.QUEUED, "planned", "plans stored"),
    _arrow(JobState.SUBMITTED, JobState.FAILED, "failed", "no plan can ever fit"),
    _arrow(JobState.SUBMITTED, JobState.CANCELLED, "cancelled", "cancelled by the user"),
    _arrow(JobState.QUEUED, JobState.RESERVED, "placed", "all devices claimed"),
    _arrow(JobState.QUEUED, JobState.CANCELLED, "cancelled", "by the user, or for a dependency"),
    _arrow(JobState.QUEUED, JobState.SUBMITTED, "replanned", "plans are stale"),
    _arrow(JobState.RESERVED, JobState.STARTING, "starting", "every node has prepared"),
    _arrow(JobState.RESERVED, JobState.STOPPING, "stopping", "refused, late, cancelled"),
    _arrow(JobState.STARTING, JobState.RUNNING, "started", "every node has started its ranks"),
    _arrow(JobState.STARTING, JobState.STOPPING, "stopping", "late, failed, cancelled"),
    _arrow(
        JobState.RUNNING, JobState.STOPPING, "stopping", "finished, failed, cancelled, preempted"
    ),
    _arrow(JobState.STOPPING, JobState.SUCCEEDED, "succeeded", "all ranks exited 0, all clean"),
    _arrow(JobState.STOPPING, JobState.FAILED, "failed", "all clean, no retry left"),
    _arrow(JobState.STOPPING, JobState.CANCELLED, "cancelled", "all clean after a cancel"),
    _arrow(JobState.STOPPING, JobState.STARTING, "starting", "all clean, a warm successor goes on"),
    _arrow(JobState.STOPPING, JobState.QUEUED, "requeued", "all clean, retry"),
    _arrow(JobState.STOPPING, JobState.SUBMITTED, "replanned", "all clean, re-plan after OOM"),
)

_BY_ENDS: Final = {(arrow.source, arrow.target): arrow for arrow in TRANSITIONS}

# Job events that report progress inside a state instead of an arrow.
PROGRESS_EVENTS: Final = (
    "submitted",
    "updated",  # a record changed on the way to its next state: evidence of one node, say
    "progressed",
    "checkpointed",
    "oom",
    "held",
    "released",
    "preempted",  # along the arrow to STOPPING: for whom, and what it was worth
    "moving",  # a successor gets ready on other devices, or is given up: why
)

CANCEL_REASONS: Final = frozenset(
    {StopReason.CANCELLED_BY_USER, StopReason.CANCELLED_BY_POLICY, StopReason.SUPERSEDED}
)
REQUEUE_REASONS: Final = frozenset(
    {StopReason.PREEMPTED, StopReason.DRAINED, StopReason.NODE_LOST}
)  # not the job's fault: no retry is counted


def transition(source: JobState, target: JobState) -> Transition:
    """Return the arrow from ``source`` to ``target``.

    Raises:
        ValueError: there is no such arrow.
    """
    arrow = _BY_ENDS.get((source, target))
    if arrow is None:
        raise ValueError(f"a job cannot go from {source} to {target}")
    return arrow


def sources_of(target: JobState) -> frozenset[JobState]:
    """Return every state from which a job may enter ``target``."""
    return frozenset(arrow.source for arrow in TRANSITIONS if arrow.target is target)
