"""What MARP decides: how a job could run, what memory that takes and how fast it goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from frenzy_shared.domain.ids import PlanId


class Precision(StrEnum):
    """Number format of weights and compute."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class ActivationCheckpointing(StrEnum):
    """Which activations are recomputed in backward."""

    NONE = "none"
    FULL = "full"


class Offload(StrEnum):
    """What of a model's states is in the node's RAM instead of on the devices."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # master weights, gradients to update with, Adam's moments
    PARAMETERS = "parameters"  # the optimizer's, and the weights (ZeRO-3)


class Loss(StrEnum):
    """How the vocabulary projection and the loss are computed."""

    FULL = "full"  # transformers' own: all logits at once
    CHUNKED = "chunked"  # some positions at a time, their gradients at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A predicted quantity with its uncertainty: ``low <= expected <= high``."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTerm:
    """One named part of the peak, in bytes per device at the peak moment."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Predicted peak memory of the worst rank, bytes per device.

    ``allocated`` is torch's max_memory_allocated, ``reserved`` the allocator's, ``device`` what
    NVML will show, ``required`` the smallest capacity on which the run survives. ``moment`` names
    where in the step the peak is; ``terms`` add up to ``allocated.expected``, a learned correction
    included, which may be negative. ``runs`` is how many finished attempts that was learned from.
    """

    allocated: Band
    reserved: Band
    device: Band
    required: Band
    moment: str
    terms: tuple[MemoryTerm, ...]
    mode: str  # "analytical", "learned", "frenzy-2024", ...
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelismPlan:
    """Degrees and batch of one plan.

    Invariant: ``micro_batch_size * gradient_accumulation_steps * data`` is the global batch.
    """

    zero_stage: int
    data: int
    tensor: int
    pipeline: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    precision: Precision
    activation_checkpointing: ActivationCheckpointing
    reduce_bucket_elements: int
    loss: Loss = Loss.FULL
    offload: Offload = Offload.NONE

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.data * self.tensor * self.pipeline

    @property
    def global_batch_size(self) -> int:
        """Return the sequences of one optimizer step."""
        return self.micro_batch_size * self.gradient_accumulation_steps * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedEstimate:
    """Predicted speed of one plan. ``parts_s`` split ``step_s`` (compute, optimizer, ...).

    ``correction`` is the factor on all of them that ``runs`` finished attempts taught.
    ``nominal_steps``: ``total_s`` and what follows from it are of so many steps, because nobody
    knows how long the job is; 0: they are of the whole job.
    """

    step_s: float
    tokens_per_s: float
    total_s: float  # to the end of the job, start-up included
    device_hours: float
    energy_joules: float
    model_flops_utilization: float
    parts_s: tuple[tuple[str, float], ...] = ()
    correction: float = 1.0
    runs: int = 0
    nominal_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEstimate:
    """What a plan takes beside its devices, bytes: RAM of one rank's process, disk of the job.

    ``ram`` and ``disk`` name the parts and add up.
    """

    ram_bytes: int
    disk_bytes: int
    ram: tuple[MemoryTerm, ...] = ()
    disk: tuple[MemoryTerm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePlan:
    """One way to run a job: ``device_count`` devices of ``kind``.

    ``single_node`` says that the gang must not be split over nodes (tensor parallelism).
    ``deepspeed_config`` and ``environment`` are complete: a rank needs nothing else.
    ``oom_probability`` is of running out of device memory; ``pinned`` are the pins that shaped it.
    """

    id: PlanId
    kind: str
    device_count: int
    single_node: bool
    parallelism: ParallelismPlan
    memory: MemoryEstimate
    speed: SpeedEstimate
    deepspeed_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    oom_probability: float | None = None
    pinned: tuple[str, ...] = ()
    host: HostEstimate | None = None
    why: str = ""  # one sentence: what makes this plan better or worse than the ones beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlan:
    """An option that MARP looked at and refused, with the numbers that decided it."""

    kind: str
    device_count: int
    option: str  # for example "1 x RTX 2080 Ti, ZeRO-3, micro-batch 1"
    reason: str  # for example "needs 11.7 GiB, the device has 10.6 GiB"
    pin: str = ""  # the user's pin that caused it ("resources.kinds"), "" when none did
    shortfall_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet:
    """MARP's answer for one job: plans best first, and why others were refused.

    ``kinds_digest`` says for which devices it was made (``cluster.kinds_digest``), ``learned_ms``
    when the newest run out of memory ended that was known then (0: none was).
    ``feasible`` is False only when no plan can ever fit the cluster's present devices.
    """

    plans: tuple[ResourcePlan, ...]
    refused: tuple[RefusedPlan, ...]
    kinds_digest: str
    message: str = ""
    learned_ms: int = 0

    @property
    def feasible(self) -> bool:
        """Tell whether at least one plan fits."""
        return bool(self.plans)
