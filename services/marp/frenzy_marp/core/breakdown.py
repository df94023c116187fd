"""The memory of one exact plan, term by term and moment by moment."""

from dataclasses import dataclass, replace

from frenzy_marp.core.candidates import precision_of
from frenzy_marp.core.deepspeed_config import bucket_elements
from frenzy_marp.core.learning_errors import Correction
from frenzy_marp.core.memory.analytical import predict_moments, predict_peak
from frenzy_marp.core.memory.estimate import DeviceTraits, estimate
from frenzy_marp.core.memory.predictor import Peak
from frenzy_shared.catalog.gpus import GpuModel, all_gpus
from frenzy_shared.domain.model import ModelArchitecture, Pins, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Loss,
    MemoryEstimate,
    Offload,
    ParallelismPlan,
    Precision,
)
from frenzy_shared.errors import InvalidSpec

_ANY_CAPABILITY = "8.0"  # what surrounds the tensors differs little between architectures


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One plan's memory. ``moments`` are in their order: building the model comes first."""

    plan: ParallelismPlan
    memory: MemoryEstimate
    moments: tuple[Peak, ...]


def exact_plan(setup: TrainingSetup, gpu: GpuModel | None) -> ParallelismPlan:
    """Return the plan that the pins describe.

    What is not pinned: one device, ZeRO-1, the whole share of a device as micro-batch, no
    checkpointing, the best precision of ``gpu`` (bf16 when none is given).

    Raises:
        InvalidSpec: the pins cannot make up the global batch, or the GPU lacks the precision.
    """
    bucket = bucket_elements(setup.model)
    if setup.pins.tensor not in {None, 1}:
        check_split(setup.model, setup.pins)
    return pinned_plan(setup.pins, setup.global_batch_size, gpu, bucket=bucket)


def pinned_plan(pins: Pins, batch: int, gpu: GpuModel | None, *, bucket: int) -> ParallelismPlan:
    """Return the plan that pins describe for ``batch`` sequences a step; see ``exact_plan``."""
    tensor = pins.tensor or 1
    devices = pins.device_count or tensor
    groups, odd = divmod(devices, tensor)
    if odd:
        raise InvalidSpec(f"{devices} devices cannot be groups of {tensor} (resources.tensor)")
    share, left_over = divmod(batch, groups)
    if left_over or not share:
        who = "devices" if tensor == 1 else f"groups of {tensor} devices"
        raise InvalidSpec(f"global batch {batch} cannot be split evenly over {groups} {who}")
    micro_batch = pins.micro_batch_size or share
    if share % micro_batch:
        raise InvalidSpec(
            f"micro-batch {micro_batch} does not divide the {share} sequences of a device"
        )
    offload = pins.offload or Offload.NONE
    usual = {Offload.NONE: 1, Offload.OPTIMIZER: 2, Offload.PARAMETERS: 3}[offload]
    return ParallelismPlan(
        zero_stage=usual if pins.zero_stage is None else pins.zero_stage,
        data=groups,
        tensor=tensor,
        pipeline=1,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=share // micro_batch,
        precision=_precision(pins, gpu),
        activation_checkpointing=pins.activation_checkpointing or ActivationCheckpointing.NONE,
        loss=pins.loss or Loss.FULL,
        reduce_bucket_elements=bucket,
        offload=offload,
    )


def check_split(model: ModelArchitecture, pins: Pins) -> None:
    """Refuse a tensor-parallel degree that cannot split a model's layers evenly.

    Raises:
        InvalidSpec: with what it does not divide, or what goes with no degree above 1.
    """
    tensor = pins.tensor or 1
    if model.adapters is not None:
        raise InvalidSpec("resources.tensor: adapters are not split; use method full, or 1")
    if pins.loss is Loss.CHUNKED or pins.offload not in {None, Offload.NONE}:
        raise InvalidSpec("resources.tensor: not with loss chunked or resources.offload")
    parts = {
        "attention heads": model.num_heads,
        "key and value heads": model.num_kv_heads,
        "feed-forward channels": model.intermediate_size,
    }
    for what, count in parts.items():
        if count % tensor:
            raise InvalidSpec(f"resources.tensor: {tensor} does not divide the {count} {what}")


def breakdown(
    setup: TrainingSetup,
    plan: ParallelismPlan,
    gpu: GpuModel | None,
    learned: Correction | None = None,
) -> Breakdown:
    """Predict the memory of a plan on ``gpu``, or on any CUDA device.

    What was ``learned`` changes the whole, not the moments.
    """
    cuda = gpu is None or not gpu.emulated
    asked = (setup.model, setup.attention, setup.sequence_length, plan)
    single = setup.optimizer_steps == 1
    peak = predict_peak(*asked, cuda=cuda, single_step=single)
    moments = predict_moments(*asked, cuda=cuda, single_step=single)
    memory = estimate(peak, device_traits(gpu, plan), correction=learned)
    return Breakdown(plan, memory, tuple(moments))


def measured_breakdown(
    moments: tuple[Peak, ...], plan: ParallelismPlan, gpu: GpuModel | None, mode: str
) -> Breakdown:
    """Return the breakdown of a plan whose moments something else than the formulas found."""
    highest = max(moments, key=lambda moment: moment.allocated)
    memory = replace(estimate(highest, device_traits(gpu, plan)), mode=mode)
    return Breakdown(plan, memory, moments)


def smallest_cards(setup: TrainingSetup, plan: ParallelismPlan, limit: int) -> tuple[GpuModel, ...]:
    """Return the smallest GPUs of the catalogue that have the plan's precision and hold it."""
    peak = predict_peak(
        setup.model,
        setup.attention,
        setup.sequence_length,
        plan,
        cuda=True,
        single_step=setup.optimizer_steps == 1,
    )
    return cards_holding(peak, setup.pins, plan, limit)


def cards_holding(
    peak: Peak, pins: Pins, plan: ParallelismPlan, limit: int
) -> tuple[GpuModel, ...]:
    """Return the smallest GPUs of the catalogue that have a plan's precision and hold its peak."""
    pins = replace(pins, precision=plan.precision)
    holding = [
        gpu
        for gpu in all_gpus()
        if precision_of(gpu, pins) is not None
        and estimate(peak, device_traits(gpu, plan)).required.high <= gpu.memory_bytes
    ]
    return tuple(sorted(holding, key=lambda gpu: gpu.memory_bytes)[:limit])


def _precision(pins: Pins, gpu: GpuModel | None) -> Precision:
    if gpu is None:
        return pins.precision or Precision.BF16
    found = precision_of(gpu, pins)
    if found is None:
        raise InvalidSpec(f"{gpu.name} does not compute in {pins.precision}")
    return found


def device_traits(gpu: GpuModel | None, plan: ParallelismPlan) -> DeviceTraits:
    """Return what surrounds a plan's tensors on ``gpu``, or on any CUDA device."""
    return DeviceTraits(
        emulated=gpu is not None and gpu.emulated,
        compute_capability=_ANY_CAPABILITY if gpu is None else gpu.compute_capability,
        ranks=plan.world_size,
    )
