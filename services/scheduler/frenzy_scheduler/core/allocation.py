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

    A running job whose plan stays keeps its very devices; one that gets a faster plan keeps them
    until its turn, so that nobody else has them before it has better ones. Stops come first in
    the answer, then resizes and placements, then a ``Hold`` for every job of ``queue`` that still
    waits. What changes hands is booked in the view's ledger, whose limits hold whatever the
    targets say.
    """
    statement = Statement(view.snapshot)
    moving = _changing(targets, view) if preemptive else {}
    held = {job.id for job in moving.values() if _gains(job, targets)}
    for job in moving.values():
        if job.id not in held:
            _evict(job, view, statement)
    waiting = {job.id: job for job in view.queue}
    stops = [
        Preempt(job=job.id, version=job.version) for job in moving.values() if job.id not in targets
    ]
    starts: list[Decision] = []
    for name, plan in targets.items():
        if name in waiting:
            placement = _allocate(waiting[name], plan, view, statement)
            if placement is not None:
                starts.append(Place(job=name, version=waiting[name].version, placement=placement))
                del waiting[name]
        elif name in moving:
            change = _move(moving[name], plan, view, statement, held=name in held)
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


def _changing(targets: Mapping[JobId, ResourcePlan], view: View) -> dict[JobId, RunningJob]:
    """Return the running jobs that do not go on with the plan that they have."""
    return {
        job.id: job
        for job in view.running
        if job.changeable and (job.id not in targets or targets[job.id].id != job.placement.plan)
    }


def _gains(job: RunningJob, targets: Mapping[JobId, ResourcePlan]) -> bool:
    target = targets.get(job.id)
    if target is None or job.plan is None:
        return False
    return target.speed.step_s < job.plan.speed.step_s


def _evict(job: RunningJob, view: View, statement: Statement) -> None:
    """Take a running job's devices."""
    statement.evict(job.placement.kind, job.placement.devices)
    view.ledger.charge(job.project, None, job.plan)


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
    job: RunningJob, plan: ResourcePlan, view: View, statement: Statement, *, held: bool
) -> Preempt | Resize | None:
    """Give a job other devices; else its old ones, which changes nothing; else none.

    One that still has its old ones and could get ready beside them gets no device of its own.
    """
    placement = None
    if held:
        view.ledger.charge(job.project, None, job.plan)
        if job.progress.move_s is not None:
            placement = _allocate(job, plan, view, statement)
        statement.evict(job.placement.kind, job.placement.devices)
    if placement is None:
        placement = _allocate(job, plan, view, statement)
    if placement is not None:
        return Resize(job=job.id, version=job.version, placement=placement)
    if statement.allocate(job.placement.kind, job.placement.devices):
        view.ledger.charge(job.project, job.plan)
        return None
    return Preempt(job=job.id, version=job.version)
