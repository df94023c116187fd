"""MARP in this process: estimates and plans without a server. Needs numpy (``frenzy[server]``)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_marp.core.breakdown import Breakdown, breakdown, exact_plan, smallest_cards
from frenzy_marp.core.frenzy_2024 import published_peak
from frenzy_marp.core.planner import plan_job
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_simulator.cluster import load_cluster

_CARDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One exact plan's memory; ``smallest`` are GPUs that hold it, when none was named."""

    setup: TrainingSetup
    found: Breakdown
    card: GpuModel | None
    smallest: tuple[GpuModel, ...]

    @property
    def capacity_bytes(self) -> int | None:
        """Return the memory of the GPU that was named, where the catalogue knows it."""
        return (self.card.memory_bytes or None) if self.card else None

    @property
    def published_bytes(self) -> int:
        """Return what the published formula (mode ``frenzy-2024``) says of one GPU."""
        return published_peak(
            self.setup.model,
            sequence_length=self.setup.sequence_length,
            micro_batch_size=self.found.plan.micro_batch_size,
        )

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
    return Estimate(setup=setup, found=breakdown(setup, plan, card), card=card, smallest=smallest)


def plan(spec: JobSpec, cluster: Path) -> tuple[PlanSet, dict[str, int]]:
    """Plan for the cluster that a file describes; return the plans and each kind's memory.

    Raises:
        FrenzyError: the file is wrong, or the job's model or sequence is impossible.
    """
    kinds = summarize_kinds(load_cluster(cluster))
    capacities = {kind.kind: kind.memory_bytes for kind in kinds}
    return plan_job(training_setup(spec), kinds), capacities
