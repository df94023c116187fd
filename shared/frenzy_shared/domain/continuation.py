"""Which plan can go on from what another plan trained: the one rule for scheduler and trainer.

A checkpoint is sharded for its plan. The built-in trainer carries it to any number of ranks and
between ZeRO-1, 2 and 3 through DeepSpeed's universal format, which stage 0 does not have, and
never to another number format. A script carries what it says that it carries.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from frenzy_shared.domain.plan import ParallelismPlan, Precision

_SHARDED: Final = frozenset({1, 2, 3})  # stages that have a universal checkpoint


class Elasticity(StrEnum):
    """What a script can go on with after a change of plan."""

    FIXED = "fixed"
    BATCH_FROM_PLAN = "batch_from_plan"
    ELASTIC = "elastic"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShape:
    """What of a plan is frozen into the checkpoints that are made under it."""

    zero_stage: int
    ranks: int
    precision: Precision

    def __str__(self) -> str:
        """Say it as people do."""
        ranks = f"{self.ranks} rank{'s' if self.ranks != 1 else ''}"
        return f"ZeRO-{self.zero_stage} on {ranks} in {self.precision}"


def shape_of(parallelism: ParallelismPlan) -> PlanShape:
    """Return the shape of one plan."""
    return PlanShape(
        zero_stage=parallelism.zero_stage,
        ranks=parallelism.world_size,
        precision=parallelism.precision,
    )


def carries(former: PlanShape, now: PlanShape) -> bool:
    """Tell whether the built-in trainer continues a checkpoint of ``former`` under ``now``."""
    if former == now:
        return True
    stages = {former.zero_stage, now.zero_stage}
    return former.precision is now.precision and stages <= _SHARDED


def script_carries(
    former: PlanShape, now: PlanShape, elasticity: Elasticity, *, by_choice: bool
) -> bool:
    """Tell whether a script goes on under ``now``.

    Its checkpoints are its own, so stage and precision stay. Ranks change only where it reads its
    batch from the plan; ``by_choice`` (nothing forces the change) only where it also divides its
    data anew, so that no sample comes twice.
    """
    if (former.zero_stage, former.precision) != (now.zero_stage, now.precision):
        return False
    if former.ranks == now.ranks or elasticity is Elasticity.ELASTIC:
        return True
    return elasticity is Elasticity.BATCH_FROM_PLAN and not by_choice
