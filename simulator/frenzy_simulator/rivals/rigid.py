"""What a scheduler may choose among when users fix the number of GPUs: only the kind."""

from collections.abc import Sequence

from frenzy_shared.domain.plan import ResourcePlan


def as_requested(plans: Sequence[ResourcePlan], gpus: int) -> tuple[ResourcePlan, ...]:
    """Return the fastest plan of each kind with as many devices as were asked for.

    Where a job fits no kind with so many, the nearest count below counts as asked for, and else
    the nearest above: without a plan a rigid scheduler could not run the job at all.
    """
    counts = {plan.device_count for plan in plans}
    below = [count for count in counts if count <= gpus]
    count = max(below) if below else min(counts)
    fastest: dict[str, ResourcePlan] = {}
    for plan in plans:
        best = fastest.get(plan.kind)
        if plan.device_count == count and (best is None or plan.speed.step_s < best.speed.step_s):
            fastest[plan.kind] = plan
    return tuple(fastest.values())
