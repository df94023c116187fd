"""Hand out devices by kind in one order over waiting and running jobs."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from frenzy_scheduler.core.admission import Ledger, Round
from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.has import plan_order
from frenzy_scheduler.core.reach import owe
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Rank = Callable[[QueuedJob | RunningJob], tuple[float | str, ...]]


def walk(view: View, rank: Rank) -> dict[JobId, ResourcePlan]:
    """Give each job, lowest rank first, its own plan or else the first that still fits.

    Jobs that must not be stopped keep theirs, whatever their rank. With quotas, owners are served
    from their own shares before anybody borrows.
    """
    changeable = [job for job in view.running if job.changeable]
    free = capacity(view.snapshot, changeable)
    ledger = released(view.ledger, changeable)
    chosen: dict[JobId, ResourcePlan] = {}
    jobs: list[QueuedJob | RunningJob] = [*view.queue, *changeable]
    jobs.sort(key=rank)
    for turn in ledger.rounds:
        for job in jobs:
            plan = None if job.id in chosen else _first(job, view, turn, free, ledger)
            if plan is not None:
                free[plan.kind] -= plan.device_count
                ledger.charge(job.project, plan)
                chosen[job.id] = plan
        if turn is Round.OWN:
            owe(ledger, (job for job in view.queue if job.id not in chosen), view.snapshot)
    if not ledger.free_for_all:
        _keep_within_limits(view, [job for job in jobs if job.id in chosen], free, ledger, chosen)
    return chosen


def released(ledger: Ledger, changeable: Iterable[RunningJob]) -> Ledger:
    """Return the ledger as if the jobs that may be stopped held nothing."""
    after = ledger.copy()
    for job in () if after.free_for_all else changeable:
        after.charge(job.project, None, job.plan)
    return after


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


def _keep_within_limits(
    view: View,
    jobs: list[QueuedJob | RunningJob],
    free: dict[str, int],
    ledger: Ledger,
    chosen: dict[JobId, ResourcePlan],
) -> None:
    """Offer less to waiting jobs whose project's running ones have kept what those were granted.

    The last in order first: a running job may keep its plan also where a waiting one was granted
    the project's limit before; that one could not start, although a smaller plan of its might.
    Who comes first stays first.
    """
    order = list(chosen)
    for job in reversed(jobs):
        if isinstance(job, RunningJob):
            continue
        held = chosen.pop(job.id)
        free[held.kind] += held.device_count
        ledger.charge(job.project, None, held)
        kept = ledger.permits(job.project, held, Round.ANY, free=free[held.kind])
        plan = held if kept else _first(job, view, Round.ANY, free, ledger)
        if plan is not None:
            free[plan.kind] -= plan.device_count
            ledger.charge(job.project, plan)
            chosen[job.id] = plan
    kept_in_order = {name: chosen[name] for name in order if name in chosen}
    chosen.clear()
    chosen.update(kept_in_order)


def _first(
    job: QueuedJob | RunningJob, view: View, turn: Round, free: Mapping[str, int], ledger: Ledger
) -> ResourcePlan | None:
    """Return the first plan that fits what is free and the quotas; its own it may always keep."""
    own = job.plan if isinstance(job, RunningJob) else None
    for plan in _preferred(job, view):
        idle = free.get(plan.kind, 0)
        if plan.device_count <= idle and (
            (plan is own and turn is Round.ANY)
            or ledger.permits(job.project, plan, turn, free=idle)
        ):
            return plan
    return None


def _preferred(job: QueuedJob | RunningJob, view: View) -> Iterator[ResourcePlan]:
    own = job.plan if isinstance(job, RunningJob) else None
    if own is not None:
        yield own
    yield from plan_order(job.plans, view.snapshot)
