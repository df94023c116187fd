"""Say why a job runs with the plan it has, from its plans alone: the scheduler's rule, read back.

The rule (docs/explanation/has.md): the first plan whose GPUs are idle; where a plan stands, plans
alike in count and parallelism stand too, the kind with the smallest memory first.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from frenzy_shared.domain.plan import PlanSet, ResourcePlan

RULE: Final = (
    "a job takes the first plan whose GPUs are idle; "
    "among plans alike in count and parallelism, the kind with the smallest memory"
)


def reason(found: PlanSet, chosen: ResourcePlan, memory_bytes: Mapping[str, int]) -> str:
    """Return a sentence without a full stop; "" for a plan that is not of these plans.

    ``memory_bytes`` is each kind's; a kind that has left the cluster counts as the largest.
    """
    order = placement_order(found.plans, memory_bytes)
    position = next((i for i, plan in enumerate(order) if plan.id == chosen.id), None)
    if position is None:
        return ""
    alike = [plan for plan in order if _alike(plan, chosen)]
    smaller = alike.index(order[position])
    parts = []
    if position > smaller:
        parts.append(f"the GPUs of {_count(position - smaller, 'earlier plan')} were not all idle")
    if len(alike) > 1:
        passed = f" of {len(alike) - smaller} that were left" if smaller else ""
        parts.append(
            f"among {len(alike)} plans alike in count and parallelism it has the kind with the "
            f"smallest memory{passed}"
        )
    return "; ".join(parts) or "it is the first plan and its GPUs were idle"


def placement_order(
    plans: Sequence[ResourcePlan], memory_bytes: Mapping[str, int]
) -> list[ResourcePlan]:
    """Return plans in the order in which the scheduler looks at them."""
    largest = max(memory_bytes.values(), default=0) + 1
    order: list[ResourcePlan] = []
    rest = list(plans)
    while rest:
        group = [plan for plan in rest if _alike(rest[0], plan)]
        order += sorted(group, key=lambda plan: (memory_bytes.get(plan.kind, largest), plan.kind))
        rest = [plan for plan in rest if not _alike(rest[0], plan)]
    return order


def _alike(one: ResourcePlan, other: ResourcePlan) -> bool:
    return _shape(one) == _shape(other)


def _shape(plan: ResourcePlan) -> tuple[object, ...]:
    # All of the parallelism but the bucket size, which is tuning for a kind's memory.
    how = plan.parallelism
    return (
        plan.device_count,
        plan.single_node,
        how.zero_stage,
        how.data,
        how.tensor,
        how.pipeline,
        how.micro_batch_size,
        how.gradient_accumulation_steps,
        how.precision,
        how.activation_checkpointing,
        how.loss,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
