"""From the plan that every job should have to devices, and to what must change for that."""

from collections.abc import Mapping, Sequence

from frenzy_scheduler.core.decisions import (
    Decision,
    Hold,
    Place,
    Preempt,
    QueuedJob,
    Resize,
    RunningJob,
    View,
)
from frenzy_scheduler.core.policies.has import best_fit, by_turn
from frenzy_scheduler.core.reach import owe
from frenzy_scheduler.core.snapshot import Statement
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.plan import ResourcePlan


def carry_out(
    targets: Mapping[JobId, ResourcePlan],
    queue: Sequence[QueuedJob],
    view: View,
    *,
    preemptive: bool,
) -> list[Decision]:
    """Choose devices for ``targets`` in the view's snapshot, which is edited.

    A running job whose plan stays keeps its very devices. Stops come first in the answer, then
    resizes and placements, then a ``Hold`` for every job of ``queue`` that still waits. What
    changes hands is booked in the view's ledger, whose limits hold whatever the targets say.
    """
    statement = Statement(view.snapshot)
    moving = _evict(targets, view, statement) if preemptive else {}
    waiting = {job.id: job for job in view.queue}
    stops = [
        Preempt(job=job.id, version=job.version) for job in moving.values() if job.id not in targets
    ]
    starts: list[Decision] = []
    for job, plan in targets.items():
        if job in waiting:
            placement = _allocate(waiting[job], plan, view, statement)
            if placement is not None:
                starts.append(Place(job=job, version=waiting[job].version, placement=placement))
                del waiting[job]
        elif job in moving:
            change = _move(moving[job], plan, view, statement)
            if isinstance(change, Preempt):
                stops.append(change)
            elif change is not None:
                starts.append(change)
    statement.commit()
    placed = {start.job for start in starts if isinstance(start, Place)}
    left = [job for job in by_turn(queue) if job.id not in placed]
    owe(view.ledger, (job for job in view.queue if job.id not in placed), view.snapshot)
    return [*stops, *starts, *_holds(left, view, preemptive=preemptive)]


def _holds(left: Sequence[QueuedJob], view: View, *, preemptive: bool) -> list[Hold]:
    """Explain waiting; a strategy that stops nobody keeps idle devices for the first who waits."""
    tried = {job.id for job in view.queue}
    head = None if preemptive else next((job.id for job in left if job.id in tried), None)
    return [
        Hold(
            job=job,
            position=number,
            after=view.snapshot,
            ledger=view.ledger,
            reserved_for=None if job.id == head else head,
        )
        for number, job in enumerate(left, 1)
    ]


def _evict(
    targets: Mapping[JobId, ResourcePlan], view: View, statement: Statement
) -> dict[JobId, RunningJob]:
    """Take the devices of every job whose plan is to change."""
    moving: dict[JobId, RunningJob] = {}
    for job in view.running:
        target = targets.get(job.id)
        if job.changeable and (target is None or target.id != job.placement.plan):
            statement.evict(job.placement.kind, job.placement.devices)
            view.ledger.charge(job.project, None, job.plan)
            moving[job.id] = job
    return moving


def _allocate(
    job: QueuedJob | RunningJob, plan: ResourcePlan, view: View, statement: Statement
) -> Placement | None:
    if not view.ledger.fits(job.project, plan):
        return None
    devices = best_fit(plan, view.snapshot.within(job.nodes))
    if not devices or not statement.allocate(plan.kind, devices):
        return None
    view.ledger.charge(job.project, plan)
    return Placement(plan=plan.id, kind=plan.kind, devices=devices)


def _move(
    job: RunningJob, plan: ResourcePlan, view: View, statement: Statement
) -> Preempt | Resize | None:
    """Give a stopped job its new devices; else its old ones, which changes nothing; else none."""
    placement = _allocate(job, plan, view, statement)
    if placement is not None:
        return Resize(job=job.id, version=job.version, placement=placement)
    if statement.allocate(job.placement.kind, job.placement.devices):
        view.ledger.charge(job.project, job.plan)
        return None
    return Preempt(job=job.id, version=job.version)
