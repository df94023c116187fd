"""The options that the planner looks at: what the pins and the global batch allow."""

from dataclasses import dataclass

from frenzy_shared.catalog.gpus import GpuModel, assumed_gpu, find_gpu
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Loss,
    Offload,
    ParallelismPlan,
    Precision,
)


@dataclass(frozen=True, slots=True)
class Option:
    """Everything about a plan but micro-batch and precision; ``micro_batches`` ascend.

    ``share`` is what one device gets of a step, in sequences; ``losses`` the ways to compute the
    loss, the usual one first.
    """

    devices: int
    zero_stage: int
    checkpointing: ActivationCheckpointing
    share: int
    micro_batches: tuple[int, ...]
    losses: tuple[Loss, ...] = (Loss.FULL,)
    offload: Offload = Offload.NONE

    def accumulates(self, index: int) -> bool:
        """Tell whether a micro-batch is less than a whole step."""
        return self.micro_batches[index] < self.share

    @property
    def recomputes(self) -> bool:
        """Tell whether activations are recomputed in backward."""
        return self.checkpointing is ActivationCheckpointing.FULL


def divisors(number: int) -> tuple[int, ...]:
    """Return every divisor of ``number``, ascending."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(small + [number // n for n in reversed(small) if n * n != number])


def gpu_model(kind: KindSummary) -> GpuModel:
    """Return the catalogue's model of a kind; an unknown one gets modest rates by its age."""
    known = find_gpu(kind.kind)
    if known is not None:
        return known
    return assumed_gpu(
        kind.kind, kind.memory_bytes, "8.0" if kind.emulated else kind.compute_capability
    )


def precision_of(gpu: GpuModel, pins: Pins) -> Precision | None:
    """Return the pinned precision, else the best one of the device; None: the pin cannot be had.

    bf16 where the device has it, else fp16, else fp32. A tensor core's fp16 needs loss scaling,
    which the engine does.
    """
    supported = [Precision.FP32]
    if gpu.fp16:
        supported.insert(0, Precision.FP16)
    if gpu.bf16:
        supported.insert(0, Precision.BF16)
    if pins.precision is None:
        return supported[0]
    return pins.precision if pins.precision in supported else None


def device_limit(kind: KindSummary, gpu: GpuModel, pins: Pins) -> int:
    """Return how many devices of a kind one job may have."""
    together = kind.total if gpu.collectives else 1
    return min(together, pins.max_devices or together)


def options(setup: TrainingSetup, pins: Pins, most_devices: int) -> dict[int, tuple[Option, ...]]:
    """Return the options for each number of devices that shares the global batch evenly.

    Ascending in devices, then in what an option costs in communication and recomputation.
    """
    found: dict[int, tuple[Option, ...]] = {}
    for devices in divisors(setup.global_batch_size):
        if devices > most_devices or pins.device_count not in (None, devices):
            continue
        share = setup.global_batch_size // devices
        micro_batches = divisors(share)
        if pins.micro_batch_size is not None:
            micro_batches = tuple(m for m in micro_batches if m == pins.micro_batch_size)
        if micro_batches:
            found[devices] = tuple(
                Option(
                    devices,
                    stage,
                    checkpointing,
                    share,
                    micro_batches,
                    losses(setup, pins),
                    pins.offload or Offload.NONE,
                )
                for stage in _stages(devices, pins)
                for checkpointing in _checkpointing(pins)
            )
    return found


def parallelism(
    option: Option,
    micro_batch: int,
    precision: Precision,
    bucket: int,
    loss: Loss = Loss.FULL,
) -> ParallelismPlan:
    """Return the plan of an option with one of its micro-batches; the global batch is exact."""
    return ParallelismPlan(
        zero_stage=option.zero_stage,
        data=option.devices,
        tensor=1,
        pipeline=1,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=option.share // micro_batch,
        precision=precision,
        activation_checkpointing=option.checkpointing,
        reduce_bucket_elements=bucket,
        loss=loss,
        offload=option.offload,
    )


def losses(setup: TrainingSetup, pins: Pins) -> tuple[Loss, ...]:
    """Return the ways to compute the loss, the usual one first.

    In chunks where that leaves less than all logits, what lies between projection and loss is
    known, and Frenzy computes it.
    """
    model, length = setup.model, setup.sequence_length
    if pins.loss is not None:
        return (pins.loss,)
    if setup.own_loss:
        return (Loss.FULL,)
    useful = model.chunk_length(length) < length and not model.structure.assumed
    return (Loss.FULL, Loss.CHUNKED) if useful else (Loss.FULL,)


def _stages(devices: int, pins: Pins) -> tuple[int, ...]:
    if pins.zero_stage is not None:
        return (pins.zero_stage,)
    if pins.offload is Offload.PARAMETERS:
        return (3,)
    if pins.offload is Offload.OPTIMIZER:
        return (2, 3)  # stage 1 keeps all gradients on the device until the step ends
    # Stage 1 shards the optimizer for the price of stage 0; alone, there is nothing to shard.
    return (1,) if devices == 1 else (1, 2, 3)


def _checkpointing(pins: Pins) -> tuple[ActivationCheckpointing, ...]:
    if pins.activation_checkpointing is not None:
        return (pins.activation_checkpointing,)
    return (ActivationCheckpointing.NONE, ActivationCheckpointing.FULL)
