"""Shortest remaining time first: with the plans' predictions and the steps that are left.

The time counts for less the more a job weighs, which is Smith's rule for weighted completion
times (Smith, "Various optimizers for single-stage production", 1956).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from frenzy_scheduler.core.decisions import QueuedJob, Rank, RunningJob, View, seconds_left
from frenzy_scheduler.core.policies.has import first_that_fits
from frenzy_scheduler.core.policies.walk import walk
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.core.urgency import weight
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.plan import ResourcePlan


@dataclass(frozen=True, slots=True)
class Srtf:
    """The waiting job that would be over soonest first; nothing that runs is touched."""

    name: str = "srtf"
    strict: bool = False

    @property
    def rank(self) -> Rank:
        """Return the time that a job's fastest plan needs."""
        return _rank

    def place(self, job: QueuedJob, snapshot: Snapshot) -> Placement | None:
        """Choose devices as ``has`` does."""
        return first_that_fits(job, snapshot)


@dataclass(frozen=True, slots=True)
class PreemptiveSrtf:
    """The same order over waiting and running jobs; whoever does not fit any more is stopped.

    A running job keeps its plan while its turn comes before the devices are gone.
    """

    name: str = "srtf-preemptive"
    preemptive: bool = True

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Hand out devices by the time that is left."""
        return walk(view, _rank)


def shortest(job: QueuedJob | RunningJob) -> float:
    """Return the seconds that the job's fastest plan needs; infinite without a plan."""
    return min((seconds_left(job.progress, plan) for plan in job.plans), default=float("inf"))


def _rank(job: QueuedJob | RunningJob) -> tuple[float | str, ...]:
    return (shortest(job) / weight(job.priority, job.standing), job.sequence, job.id)
