"""HAS as published: arrival order with skipping, MARP's plan order, best fit.

Priority and fair share are ours: they move a job's place in line, and nothing else (``urgency``).

Source: "Frenzy: A Memory-Aware Serverless LLM Training System for Heterogeneous GPU Clusters"
(arXiv 2412.14479). What the text leaves open is decided here and explained in
docs/explanation/has.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from frenzy_scheduler.core.decisions import QueuedJob, Rank
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.placement import DeviceRef, Placement
from frenzy_shared.domain.plan import ResourcePlan

# What makes plans alike. Bucket sizes are tuning for a kind's memory, not parallelism.
_DEGREES: Final = attrgetter(
    "zero_stage",
    "data",
    "tensor",
    "pipeline",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "precision",
    "activation_checkpointing",
    "loss",
)
TURN: Final[Rank] = attrgetter("turn_ms", "sequence", "id")


@dataclass(frozen=True, slots=True)
class Has:
    """First plan that idle devices can serve, on the tightest node that holds it whole."""

    name: str = "has"
    strict: bool = False

    @property
    def rank(self) -> Rank:
        """Return the turn."""
        return TURN

    def place(self, job: QueuedJob, snapshot: Snapshot) -> Placement | None:
        """Take the first plan that fits, in ``plan_order``."""
        return first_that_fits(job, snapshot)


def by_turn(queue: Sequence[QueuedJob]) -> Sequence[QueuedJob]:
    """Return jobs by arrival, head starts for priority and fair share taken into account.

    Ties go by the store's arrival number; equal ones, which a store never gives, by id.
    """
    return sorted(queue, key=TURN)


def first_that_fits(job: QueuedJob, snapshot: Snapshot) -> Placement | None:
    """Return devices for the job's first plan that idle devices can serve."""
    if not could_fit(job.plans, snapshot):
        return None
    for plan in plan_order(job.plans, snapshot):
        devices = best_fit(plan, snapshot)
        if devices:
            return Placement(plan=plan.id, kind=plan.kind, devices=devices)
    return None


def could_fit(plans: Sequence[ResourcePlan], snapshot: Snapshot) -> bool:
    """Tell quickly whether enough devices of some plan's kind are idle, wherever they are."""
    idle = snapshot.idle_by_kind
    for plan in plans:  # noqa: SIM110 - any() costs twice as much, for every job in every cycle
        if plan.device_count <= idle.get(plan.kind, 0):
            return True
    return False


def plan_order(plans: Sequence[ResourcePlan], snapshot: Snapshot) -> Iterator[ResourcePlan]:
    """Yield plans in MARP's order, except that alike plans go by memory, smallest kind first.

    Alike are plans of the same count and parallelism: the paper's plan is a count and a memory
    floor, and the kind is chosen at placement. A group stands where its best member stood.
    """
    rest = list(plans)
    while rest:  # most often the first group is all that anybody looks at
        first = rest[0]
        group = [plan for plan in rest if plan is first or _alike(first, plan)]
        if len(group) > 1:
            group.sort(key=lambda plan: (snapshot.memory_bytes(plan.kind), plan.kind))
        yield from group
        seen = {id(plan) for plan in group}
        rest = [plan for plan in rest if id(plan) not in seen]


def best_fit(plan: ResourcePlan, snapshot: Snapshot) -> tuple[DeviceRef, ...]:
    """Choose devices for one plan; empty when the idle ones do not suffice.

    One node if any holds the gang: the one with the fewest idle devices. Else, unless the plan
    must stay on one node, nodes with most idle devices first, so that few nodes are used.
    """
    if snapshot.idle(plan.kind) < plan.device_count:
        return ()
    node = snapshot.tightest_node(plan.kind, plan.device_count)
    if node is not None:
        return snapshot.devices(plan.kind, node, plan.device_count)
    if plan.single_node:
        return ()
    chosen: list[DeviceRef] = []
    for name, idle in snapshot.nodes_by_idle(plan.kind):
        missing = plan.device_count - len(chosen)
        chosen.extend(snapshot.devices(plan.kind, name, min(idle, missing)))
        if len(chosen) == plan.device_count:
            break
    return tuple(chosen)


def _alike(one: ResourcePlan, other: ResourcePlan) -> bool:
    return (
        one.device_count == other.device_count
        and one.single_node == other.single_node
        and _DEGREES(one.parallelism) == _DEGREES(other.parallelism)
    )
