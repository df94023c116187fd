"""What a job could ever get: the plans that the nodes it may run on can hold."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from frenzy_scheduler.core.admission import Ledger, Round
from frenzy_scheduler.core.decisions import QueuedJob, RunningJob
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan


def possible(job: QueuedJob, snapshot: Snapshot, running: Sequence[RunningJob] = ()) -> QueuedJob:
    """Return a pinned job with only those plans that its nodes can hold now.

    Counted are devices that are idle or held by jobs that may be stopped: a strategy that hands
    out by kind must not keep devices for a job that cannot use them.
    """
    if job.nodes is None:
        return job
    there = snapshot.within(job.nodes)
    within = {kind: there.idle(kind) for kind in there.kinds}
    for other in running:
        kind = other.placement.kind
        if other.changeable and kind in within:
            within[kind] += sum(ref.node in job.nodes for ref in other.placement.devices)
    plans = (plan for plan in job.plans if plan.device_count <= within.get(plan.kind, 0))
    return replace(job, plans=tuple(plans))


def in_line(
    ordered: Sequence[QueuedJob], placed: Container[JobId], ledger: Ledger, snapshot: Snapshot
) -> Iterator[tuple[QueuedJob, Round]]:
    """Yield the jobs that are not placed yet: owners, for their own shares, and then everybody.

    ``ledger`` and ``snapshot`` change while the caller hands out.
    """
    for turn in ledger.rounds:
        for job in ordered:
            if job.id not in placed and (turn is Round.ANY or ledger.owns(job.project)):
                yield job, turn
        if turn is Round.OWN:
            owe(ledger, (job for job in ordered if job.id not in placed), snapshot)


def permitted(
    job: QueuedJob, turn: Round, ledger: Ledger, snapshot: Snapshot, *, idle: bool
) -> QueuedJob:
    """Return the job with only those plans that quotas allow now; ``idle``: and that may fit."""
    if ledger.free_for_all:
        return job
    plans: list[ResourcePlan] = []
    for plan in job.plans:
        free = snapshot.idle(plan.kind)
        fits = not idle or plan.device_count <= free
        if fits and ledger.permits(job.project, plan, turn, free=free):
            plans.append(plan)
    return replace(job, plans=tuple(plans))


def owe(ledger: Ledger, waiting: Iterable[QueuedJob], snapshot: Snapshot) -> None:
    """Note in the ledger what owners among ``waiting`` jobs are owed of what the cluster has."""
    if not ledger.free_for_all:
        ledger.owe(
            (job.project, job.plans, partial(_could_be, snapshot.within(job.nodes)))
            for job in waiting
            if ledger.owns(job.project)
        )


def _could_be(there: Snapshot, plan: ResourcePlan) -> bool:
    """Tell whether the nodes have enough devices for a plan, idle or not."""
    most = there.largest_node if plan.single_node else there.total
    return plan.device_count <= most(plan.kind)
