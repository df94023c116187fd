"""Whom a preemptive policy may stop for whom: never a job for one of lower priority.

Policies weigh by priority, so a low one seldom outbids a high one, but a short one may. A running
job that would lose its devices, or be slowed down, to jobs of lower priority only keeps them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from frenzy_scheduler.core.decisions import Allocator, QueuedJob, RunningJob, View
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan


def keeping_precedence(policy: Allocator, view: View) -> Mapping[JobId, ResourcePlan]:
    """Return what the policy allocates when it may stop nobody for jobs of lower priority.

    Each repetition protects one running job more, so there are at most as many as jobs run.
    """
    kept: dict[JobId, ResourcePlan] = {}
    targets = policy.allocate(view)
    everybody: list[QueuedJob | RunningJob] = [*view.queue, *view.running]
    lowest = min((job.priority for job in everybody), default=0)
    if not policy.preemptive or all(job.priority == lowest for job in view.running):
        return targets  # nobody's priority could be wronged
    while wronged := dict(_wronged(view, targets)):
        kept |= wronged
        running = [
            replace(job, preemptible=False) if job.id in wronged else job for job in view.running
        ]
        view = replace(view, running=running)
        targets = policy.allocate(view)
    return {**targets, **kept}


def _wronged(
    view: View, targets: Mapping[JobId, ResourcePlan]
) -> Iterator[tuple[JobId, ResourcePlan]]:
    """Yield running jobs, with their plans, that lose to jobs of lower priority only."""
    losers = [job for job in view.running if job.changeable and _loses(job, view, targets)]
    if not losers:
        return
    gains = _highest_gains(view, targets)
    for job in losers:
        if gains.get(job.placement.kind, job.priority) < job.priority and job.plan is not None:
            yield job.id, job.plan


def _loses(job: RunningJob, view: View, targets: Mapping[JobId, ResourcePlan]) -> bool:
    """Tell whether a job is stopped or slowed down on nodes that it could stay on."""
    kind, target = job.placement.kind, targets.get(job.id)
    if view.ledger.borrows(job.project, kind):
        return False  # owners may ask for theirs back, whatever their priority
    if not all(view.snapshot.has_node(kind, node) for node in job.placement.nodes):
        return False
    if target is None:
        return True
    return job.plan is not None and target.speed.step_s > job.plan.speed.step_s


def _highest_gains(view: View, targets: Mapping[JobId, ResourcePlan]) -> dict[str, int]:
    """Return, by kind, the highest priority among the jobs that get more of it than they have."""
    highest: dict[str, int] = {}
    held = {job.id: job.placement for job in view.running}
    jobs: list[QueuedJob | RunningJob] = [*view.queue, *view.running]
    for job in jobs:
        target = targets.get(job.id)
        if target is None:
            continue
        present = held.get(job.id)
        before = len(present.devices) if present and present.kind == target.kind else 0
        if target.device_count > before:
            highest[target.kind] = max(highest.get(target.kind, job.priority), job.priority)
    return highest
