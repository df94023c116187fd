"""MARP in this process: estimates and plans without a server. Needs numpy (``frenzy[server]``)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_marp.adapters.traced import trace_estimate
from frenzy_marp.adapters.tracing import Tracer
from frenzy_marp.core.breakdown import (
    Breakdown,
    breakdown,
    cards_holding,
    exact_plan,
    smallest_cards,
)
from frenzy_marp.core.frenzy_2024 import published_peak
from frenzy_marp.core.planner import plan_job
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.catalog.models import resolve_model
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.setup import pins_of, training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.trace import Factory
from frenzy_simulator.cluster import load_cluster

_CARDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One exact plan's memory; ``smallest`` are GPUs that hold it, when none was named.

    ``published_bytes`` is what the published formula (mode ``frenzy-2024``) says of one GPU,
    where it has the model's dimensions.
    """

    family: str
    parameters: int
    sequence_length: int
    attention: str
    found: Breakdown
    card: GpuModel | None
    smallest: tuple[GpuModel, ...]
    published_bytes: int | None

    @property
    def capacity_bytes(self) -> int | None:
        """Return the memory of the GPU that was named, where the catalogue knows it."""
        return (self.card.memory_bytes or None) if self.card else None

    @property
    def spare_bytes(self) -> int | None:
        """Return what the GPU has beyond what is required, negative when it is short."""
        capacity = self.capacity_bytes
        return None if capacity is None else capacity - self.found.memory.required.high


def estimate(spec: JobSpec, card: GpuModel | None) -> Estimate:
    """Predict the memory of the plan that a job's pins describe, on ``card`` or any CUDA GPU.

    Raises:
        FrenzyError: the model is impossible, or the pins contradict each other or the GPU.
    """
    setup = training_setup(spec)
    plan = exact_plan(setup, card)
    smallest = smallest_cards(setup, plan, _CARDS) if card is None else ()
    return Estimate(
        family=str(setup.model.family),
        parameters=setup.model.num_parameters,
        sequence_length=setup.sequence_length,
        attention=str(setup.attention),
        found=breakdown(setup, plan, card),
        card=card,
        smallest=smallest,
        published_bytes=published_peak(
            setup.model,
            sequence_length=setup.sequence_length,
            micro_batch_size=plan.micro_batch_size,
        ),
    )


def traced_estimate(spec: JobSpec, card: GpuModel | None, factory: Factory | None) -> Estimate:
    """Measure the memory of the plan that a job's pins describe, in the engine itself.

    Runs the ``factory`` of this machine's user in a child process, when one is given.

    Raises:
        FrenzyError: the pins contradict each other or the GPU, or there is no trace.
    """
    tracer = Tracer(allow_code=factory is not None)
    traced = trace_estimate(tracer, spec, card, factory)
    found = traced.found
    highest = max(found.moments, key=lambda moment: moment.allocated)
    pins = pins_of(spec)
    model = resolve_model(spec.model or {})
    return Estimate(
        family=str(model.get("model_type")),
        parameters=traced.parameters,
        sequence_length=traced.sequence_length,
        attention=str(traced.attention),
        found=found,
        card=card,
        smallest=cards_holding(highest, pins, found.plan, _CARDS) if card is None else (),
        published_bytes=None,
    )


def plan(spec: JobSpec, cluster: Path) -> tuple[PlanSet, dict[str, int]]:
    """Plan for the cluster that a file describes; return the plans and each kind's memory.

    Raises:
        FrenzyError: the file is wrong, or the job's model or sequence is impossible.
    """
    kinds = summarize_kinds(load_cluster(cluster))
    capacities = {kind.kind: kind.memory_bytes for kind in kinds}
    return plan_job(training_setup(spec), kinds), capacities
