"""How a job could run on a cluster, and how fast: pluggable, MARP's plans by default."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from frenzy_marp.core.planner import plan_job
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.domain.plan import ResourcePlan

_STATE_BYTES: Final = 16  # a checkpoint's bytes per parameter: weights, fp32 copy, two moments


class ThroughputModel(Protocol):
    """Tells the plans of a set-up, best first, and what its checkpoints weigh."""

    def plans(self, setup: TrainingSetup) -> tuple[ResourcePlan, ...]:
        """Return every way to run it; empty when it fits nowhere. Equal calls, same objects."""
        ...

    def checkpoint_bytes(self, setup: TrainingSetup) -> int:
        """Return the size of a full checkpoint."""
        ...


@dataclass
class Marp:
    """The plans that the MARP service would give for this cluster's kinds.

    Plans are those of a run of unknown length: policies multiply ``step_s`` with steps.
    """

    kinds: Sequence[KindSummary]
    _plans: dict[TrainingSetup, tuple[ResourcePlan, ...]] = field(default_factory=dict)

    def plans(self, setup: TrainingSetup) -> tuple[ResourcePlan, ...]:
        """Plan a set-up once and remember it."""
        found = self._plans.get(setup)
        if found is None:
            found = self._plans[setup] = plan_job(setup, self.kinds).plans
        return found

    def checkpoint_bytes(self, setup: TrainingSetup) -> int:
        """Return 16 bytes per parameter."""
        return _STATE_BYTES * setup.model.num_parameters


@dataclass(frozen=True)
class Table:
    """Given plans, for measured profiles and for cases computed by hand."""

    rows: dict[TrainingSetup, tuple[ResourcePlan, ...]]
    size_bytes: int = 0

    def plans(self, setup: TrainingSetup) -> tuple[ResourcePlan, ...]:
        """Return the row of a set-up."""
        return self.rows.get(setup, ())

    def checkpoint_bytes(self, setup: TrainingSetup) -> int:  # noqa: ARG002 - the same for all
        """Return the one size."""
        return self.size_bytes
