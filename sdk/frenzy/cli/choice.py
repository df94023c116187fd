"""Say how the scheduler chooses among a job's plans, and why a job has the plan it has.

Policies that take what is idle share one rule (docs/explanation/has.md): the first plan whose GPUs
are idle; where a plan stands, plans alike in count and parallelism stand too, the kind with the
smallest memory first. The others weigh: of their choice, only the principle can be told from here.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from frenzy.client import Client
from frenzy.errors import FrenzyError
from frenzy_shared.domain.plan import PlanSet, ResourcePlan

log = logging.getLogger(__name__)

_FIRST_IDLE: Final = (
    "a job takes the first plan whose GPUs are idle; "
    "among plans alike in count and parallelism, the kind with the smallest memory"
)
_WEIGHED: Final = (
    "the scheduler weighs what each plan gains against what its GPUs are worth to other jobs; "
    "it need not take the first"
)
_RULES: Final = {
    "has": _FIRST_IDLE,
    "fifo": _FIRST_IDLE,
    "srtf": _FIRST_IDLE,
    "backfill": _FIRST_IDLE,
    "frenzy": _WEIGHED,
}


def policy_of(client: Client) -> str:
    """Return the policy of the cluster's scheduler; "" when it does not say."""
    try:
        return client.policy()
    except FrenzyError as error:  # plans are worth showing without it
        log.debug("the scheduler does not say its policy: %s", error)
        return ""


def rule(policy: str) -> str:
    """Return how a policy chooses among plans; "" for a policy that is not known here."""
    return _RULES.get(policy, "")


def in_order(policy: str) -> bool:
    """Tell whether a policy takes the first plan, in ``placement_order``, whose GPUs are idle."""
    return rule(policy) is _FIRST_IDLE


def reason(
    found: PlanSet, chosen: ResourcePlan, memory_bytes: Mapping[str, int], policy: str
) -> str:
    """Return a sentence without a full stop; "" when it cannot be told from the plans alone.

    That is so for a plan that is not of these plans, and under a policy that weighs or preempts.
    ``memory_bytes`` is each kind's; a kind that has left the cluster counts as the largest.
    """
    if not in_order(policy):
        return ""
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
        idle = " of those whose GPUs were idle" if smaller else ""
        parts.append(
            f"of {len(alike)} plans alike in count and parallelism, its kind has the "
            f"smallest memory{idle}"
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
