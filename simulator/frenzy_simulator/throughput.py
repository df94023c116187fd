"""How a workload could run on a cluster, and how fast: pluggable, MARP's plans by default."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from frenzy_marp.core.planner import plan_job
from frenzy_shared.catalog.models import architecture_from_config, resolve_model
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Attention, Pins, TrainingSetup
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_simulator.jobs import Workload

_STATE_BYTES: Final = 16  # a checkpoint's bytes per parameter: weights, fp32 copy, two moments


class ThroughputModel(Protocol):
    """Tells the plans of a workload, best first, and what its checkpoints weigh."""

    def plans(self, workload: Workload) -> tuple[ResourcePlan, ...]:
        """Return every way to run it; empty when it fits nowhere. Equal calls, same objects."""
        ...

    def checkpoint_bytes(self, workload: Workload) -> int:
        """Return the size of a full checkpoint."""
        ...


@dataclass
class Marp:
    """The plans that the MARP service would give for this cluster's kinds.

    Plans are those of a run of unknown length: policies multiply ``step_s`` with steps.
    """

    kinds: Sequence[KindSummary]
    _plans: dict[Workload, tuple[ResourcePlan, ...]] = field(default_factory=dict)

    def plans(self, workload: Workload) -> tuple[ResourcePlan, ...]:
        """Plan a workload once and remember it."""
        found = self._plans.get(workload)
        if found is None:
            found = self._plans[workload] = plan_job(_setup(workload), self.kinds).plans
        return found

    def checkpoint_bytes(self, workload: Workload) -> int:
        """Return 16 bytes per parameter."""
        return _STATE_BYTES * _setup(workload).model.num_parameters


@dataclass(frozen=True)
class Table:
    """Given plans, for measured profiles and for cases computed by hand."""

    rows: dict[Workload, tuple[ResourcePlan, ...]]
    size_bytes: int = 0

    def plans(self, workload: Workload) -> tuple[ResourcePlan, ...]:
        """Return the row of a workload."""
        return self.rows.get(workload, ())

    def checkpoint_bytes(self, workload: Workload) -> int:  # noqa: ARG002 - the same for all
        """Return the one size."""
        return self.size_bytes


def _setup(workload: Workload) -> TrainingSetup:
    return TrainingSetup(
        model=architecture_from_config(resolve_model(workload.model)),
        sequence_length=workload.sequence_length,
        global_batch_size=workload.global_batch_size,
        optimizer_steps=None,
        optimizer="adamw",
        attention=Attention.SDPA,
        learning_rate=1e-4,
        pins=Pins(),
    )
