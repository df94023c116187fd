"""A complete resource plan to change from: tests say only what matters to them."""

from dataclasses import replace

from frenzy_shared.domain.ids import PlanId
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Band,
    MemoryEstimate,
    MemoryTerm,
    ParallelismPlan,
    Precision,
    ResourcePlan,
    SpeedEstimate,
)


def resource_plan(name="p1", kind="emulated-small", devices=1, expected=100, **changes):
    """``devices`` of ``kind``, data-parallel, ``expected`` bytes +- 10 %; changes by field name.

    Names of ParallelismPlan's and SpeedEstimate's fields change those.
    """
    band = Band(low=int(expected * 0.9), expected=expected, high=int(expected * 1.1))
    parallelism = ParallelismPlan(
        zero_stage=1,
        data=devices,
        tensor=1,
        pipeline=1,
        micro_batch_size=1,
        gradient_accumulation_steps=1,
        precision=Precision.BF16,
        activation_checkpointing=ActivationCheckpointing.NONE,
        reduce_bucket_elements=1000,
    )
    speed = SpeedEstimate(
        step_s=1.0,
        tokens_per_s=1.0,
        total_s=1.0,
        device_hours=1.0,
        energy_joules=1.0,
        model_flops_utilization=0.1,
    )
    terms = (
        MemoryTerm(name="weights", size_bytes=expected // 4),
        MemoryTerm(name="optimizer", size_bytes=expected - expected // 4),
    )
    return ResourcePlan(
        id=PlanId(name),
        kind=kind,
        device_count=devices,
        single_node=changes.pop("single_node", False),
        parallelism=_changed(parallelism, changes),
        speed=_changed(speed, changes),
        memory=MemoryEstimate(
            allocated=band,
            reserved=band,
            device=band,
            required=band,
            moment="the optimizer step",
            terms=terms,
            mode="analytical",
        ),
        **changes,
    )


def _changed(value, changes):
    own = [name for name in changes if name in type(value).__dataclass_fields__]
    return replace(value, **{name: changes.pop(name) for name in own})
