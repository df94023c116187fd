"""Hand out devices by kind in one order over waiting and running jobs."""

from collections.abc import Callable, Iterable, Iterator

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.has import plan_order
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Rank = Callable[[QueuedJob | RunningJob], tuple[float | str, ...]]


def walk(view: View, rank: Rank) -> dict[JobId, ResourcePlan]:
    """Give each job, lowest rank first, its own plan or else the first that still fits.

    Jobs that must not be stopped keep theirs, whatever their rank.
    """
    changeable = [job for job in view.running if job.changeable]
    free = capacity(view.snapshot, changeable)
    chosen: dict[JobId, ResourcePlan] = {}
    jobs: list[QueuedJob | RunningJob] = [*view.queue, *changeable]
    for job in sorted(jobs, key=rank):
        for plan in _preferred(job, view):
            if plan.device_count <= free.get(plan.kind, 0):
                free[plan.kind] -= plan.device_count
                chosen[job.id] = plan
                break
    return chosen


def capacity(snapshot: Snapshot, changeable: Iterable[RunningJob]) -> dict[str, int]:
    """Return, by kind, the devices that are idle or held by jobs that may be changed.

    Devices of nodes that cannot get work do not count, whoever holds them.
    """
    free = {kind: snapshot.idle(kind) for kind in snapshot.kinds}
    for job in changeable:
        kind = job.placement.kind
        for ref in job.placement.devices:
            if snapshot.has_node(kind, ref.node):
                free[kind] += 1
    return free


def _preferred(job: QueuedJob | RunningJob, view: View) -> Iterator[ResourcePlan]:
    own = job.plan if isinstance(job, RunningJob) else None
    if own is not None:
        yield own
    yield from plan_order(job.plans, view.snapshot)
