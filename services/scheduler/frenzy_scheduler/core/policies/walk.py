"""Hand out devices by kind in one order over waiting and running jobs."""

from collections.abc import Callable, Iterator

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.has import plan_order
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Rank = Callable[[QueuedJob | RunningJob], tuple[float | str, ...]]


def walk(view: View, rank: Rank) -> dict[JobId, ResourcePlan]:
    """Give each job, lowest rank first, its own plan or else the first that still fits.

    Jobs that must not be stopped keep theirs, whatever their rank.
    """
    free = capacity(view)
    chosen: dict[JobId, ResourcePlan] = {}
    jobs: list[QueuedJob | RunningJob] = [*view.queue, *_stoppable(view)]
    for job in sorted(jobs, key=rank):
        for plan in _preferred(job, view):
            if plan.device_count <= free.get(plan.kind, 0):
                free[plan.kind] -= plan.device_count
                chosen[job.id] = plan
                break
    return chosen


def capacity(view: View) -> dict[str, int]:
    """Return, by kind, the devices that are idle or held by jobs that may be stopped."""
    free = {kind: view.snapshot.idle(kind) for kind in view.snapshot.kinds}
    for job in _stoppable(view):
        free[job.placement.kind] = free.get(job.placement.kind, 0) + len(job.placement.devices)
    return free


def _stoppable(view: View) -> list[RunningJob]:
    return [job for job in view.running if job.preemptible]


def _preferred(job: QueuedJob | RunningJob, view: View) -> Iterator[ResourcePlan]:
    own = job.plan if isinstance(job, RunningJob) else None
    if own is not None:
        yield own
    yield from plan_order(job.plans, view.snapshot)
