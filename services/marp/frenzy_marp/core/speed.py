"""Predict the time of a step: matrix products, traffic, launches, optimizer, collectives.

Kernels of eager code run one after the other, so their times add up: a matrix product takes what
its operations take, everything else what its bytes take. Ranking is what it is for; absolute times
are within some ten per cent on GPUs that were checked (benchmarks/speed). Every constant is a
prior; what finished runs teach comes on top (``core/learning.py``).
"""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.learning_errors import NOTHING_LEARNED, Correction
from frenzy_marp.core.speed_rates import PRIORS, Priors, Rates, peak_flops, rates, ring_bytes_s
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Attention, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Offload,
    ParallelismPlan,
    Precision,
    SpeedEstimate,
)

NOMINAL_STEPS: Final = 1000  # of a run whose length nobody knows

_POWER_OF_BOARD: Final = 0.8  # drawn while training
# torch's AdamW over lists of tensors (foreach) in fp32, each kernel reading and writing: decay 8,
# first moment 12, second 8 + 16, root 8, correction 8, epsilon 8, update 16; casts around it 12.
_BYTES_PER_OPTIMIZED_PARAMETER: Final = 96
_PARTS: Final = ("compute", "launch", "optimizer", "communication")
_OPERATORS_PER_LAYER: Final = (90, 150)  # forward and backward: plain, and with a gated MLP
# What the host's processors read and write for an offloaded optimizer, all ranks of a node
# together, per second: a prior. Gradients go to the host in fp32.
_HOST_BYTES_S: Final = 100e9
_OFFLOADED_GRADIENT_BYTES: Final = 4
_TENSOR_REDUCTIONS: Final = (4, 6)  # of a layer's hidden states, without and with recomputation


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a job runs on one kind in one precision: what all its plans have in common.

    Pairs are without and with recomputation. ``compute_s``, ``tensor_s`` (the collectives of
    tensor parallelism) and ``optimizer_s`` are of a step without data parallelism, ``launch_s`` is
    of a micro-step. Sizes are of one of ``tensor`` shares of the model.
    """

    gpu: GpuModel
    rates: Rates
    priors: Priors
    compute_s: tuple[float, float]
    launch_s: tuple[float, float]
    tensor_s: tuple[float, float]
    optimizer_s: float
    flops: float  # of a step, on all devices
    steps: int
    tensor: int
    parameter_bytes: float
    gradient_bytes: float  # less where only adapters are trained
    trained: float  # parameters
    gathered: int  # weights that ZeRO-3 gathers, each on its own
    buckets: int
    node_devices: int
    offload: Offload = Offload.NONE

    def on(self, devices: int) -> "Gang":
        """Return the pace of so many data-parallel devices (or groups of tensor-parallel ones)."""
        beyond = devices * self.tensor > self.node_devices
        hops = devices - 1
        around = hops / devices / self._ring_bytes_s(devices, beyond=beyond)
        host = self._host_s(devices)
        return Gang(
            pace=self,
            compute_s=(self.compute_s[0] / devices, self.compute_s[1] / devices),
            tensor_s=(self.tensor_s[0] / devices, self.tensor_s[1] / devices),
            optimizer_s=(self.optimizer_s, host.optimizer_s or self.optimizer_s / devices),
            host=host,
            ring_s=around * self.parameter_bytes,
            gradient_ring_s=around * self.gradient_bytes,
            hops_s=hops * self.rates.messages_s[beyond],
        )

    def _host_s(self, devices: int) -> "HostTime":
        """Return what offloading takes: an update on the host, and the way there and back."""
        if self.offload is Offload.NONE:
            return HostTime()
        link = self.gpu.host_link * self.priors.host_share
        trained = self.trained / devices
        element = self.gradient_bytes / self.trained
        weights = self.parameter_bytes / devices if self.offload is Offload.PARAMETERS else 0.0
        neighbours = min(devices, self.node_devices)
        updated = trained * _BYTES_PER_OPTIMIZED_PARAMETER * neighbours
        return HostTime(
            optimizer_s=updated / _HOST_BYTES_S,
            step_s=trained * (_OFFLOADED_GRADIENT_BYTES + element) / link,
            gather_s=weights / link,
            accumulate_s=2 * trained * element / link,
        )

    def _ring_bytes_s(self, devices: int, *, beyond: bool) -> float:
        neighbours = min(devices, self.node_devices)
        return ring_bytes_s(self.gpu, neighbours, beyond=beyond, priors=self.priors)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """Seconds that offloading takes: in a step, for a gathering of weights, in a micro-step."""

    optimizer_s: float = 0.0
    step_s: float = 0.0
    gather_s: float = 0.0
    accumulate_s: float = 0.0

    def moving_s(self, micro_steps: int, gathers: int) -> float:
        """Return the seconds in which a step moves things between host and device."""
        accumulating = self.accumulate_s * (micro_steps - 1)
        return self.step_s + accumulating + gathers * self.gather_s * micro_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The pace of a number of devices. ``optimizer_s``: with whole states, and with sharded ones.

    ``ring_s`` is what a ring collective takes: it moves (n-1)/n of the parameters' bytes through
    every link, ``gradient_ring_s`` of the trained ones'; ``hops_s`` what one message takes to go
    around.
    """

    pace: Pace
    compute_s: tuple[float, float]
    tensor_s: tuple[float, float]
    optimizer_s: tuple[float, float]
    ring_s: float
    gradient_ring_s: float
    hops_s: float
    host: HostTime

    def parts_s(
        self, stage: int, micro_steps: int, *, recomputes: bool
    ) -> tuple[float, float, float, float]:
        """Return the seconds of a step: compute, launch, optimizer, communication.

        Where the processor runs ahead of the device only the launches that it waits for count.
        """
        compute_s = self.compute_s[recomputes]
        launch_s = self.pace.launch_s[recomputes] * micro_steps
        if self.pace.rates.queued:
            launch_s = max(0.0, launch_s - compute_s)
        shared_s = self._communication_s(stage, micro_steps, recomputes=recomputes)
        return (
            compute_s,
            launch_s,
            self.optimizer_s[stage > 0],
            shared_s
            + self.tensor_s[recomputes]
            + self.host.moving_s(micro_steps, 3 if recomputes else 2),
        )

    def total_s(
        self, stage: int, micro_steps: int, *, recomputes: bool, slowness: float = 1.0
    ) -> float:
        """Return the seconds of the whole run; more micro-steps never take less.

        ``slowness`` is what runs have taught: observed over predicted time of a step.
        """
        step_s = sum(self.parts_s(stage, micro_steps, recomputes=recomputes))
        return self.pace.rates.start_up_s + self.pace.steps * step_s * slowness

    def _communication_s(self, stage: int, micro_steps: int, *, recomputes: bool) -> float:
        """Add up collectives.

        Stages 0 and 1 reduce once a step, stage 2 every micro-step; stage 3 gathers for forward,
        backward (and recomputation) and scatters gradients, every micro-step.
        """
        if stage < 3:
            rings = 2 if stage < 2 else 2 * micro_steps + 1
            return rings * (self.gradient_ring_s + self.pace.buckets * self.hops_s)
        gathers = 3 if recomputes else 2
        messages = gathers * self.pace.gathered + self.pace.buckets
        rings_s = gathers * self.ring_s + self.gradient_ring_s
        return micro_steps * (rings_s + messages * self.hops_s)


def pace(
    setup: TrainingSetup,
    kind: KindSummary,
    gpu: GpuModel,
    precision: Precision,
    bucket: int,
    *,
    tensor: int = 1,
    tf32: bool = False,
    priors: Priors = PRIORS,
    offload: Offload = Offload.NONE,
) -> Pace:
    """Work out what every plan of a job on a kind has in common; ``bucket`` is in elements."""
    model = setup.model
    element = 4 if precision is Precision.FP32 else 2
    reached = rates(model, precision, kind, gpu, tf32=tf32, priors=priors)
    launch_s = _OPERATORS_PER_LAYER[model.structure.gated] * model.num_layers * reached.operator_s
    flops = training_flops(setup)
    compute_s = flops / tensor / reached.flops
    traffic_s = _traffic_bytes(setup, element, tensor, priors) / reached.bandwidth
    every, updated = model.num_parameters, model.num_trained_parameters
    share, trained = every / tensor, updated / tensor
    ring = ring_bytes_s(gpu, tensor, beyond=False, priors=priors)
    reduced_s = _reduced_bytes(setup, element, tensor) / ring
    plain, recomputing = (count * reduced_s for count in _TENSOR_REDUCTIONS)
    return Pace(
        gpu=gpu,
        rates=reached,
        priors=priors,
        compute_s=(compute_s + traffic_s, (compute_s + traffic_s) * 4 / 3),
        launch_s=(launch_s, launch_s * 4 / 3),
        tensor_s=(plain, recomputing),
        optimizer_s=trained * _BYTES_PER_OPTIMIZED_PARAMETER / reached.bandwidth,
        flops=flops,
        steps=setup.optimizer_steps or NOMINAL_STEPS,
        tensor=tensor,
        parameter_bytes=share * element,
        gradient_bytes=trained * element,
        gathered=7 * model.num_layers,
        buckets=-(-updated // bucket),
        node_devices=kind.node_counts[0],
        trained=trained,
        offload=offload,
    )


def estimate_speed(
    setup: TrainingSetup,
    plan: ParallelismPlan,
    kind: KindSummary,
    gpu: GpuModel,
    pace: Pace,
    *,
    correction: Correction = NOTHING_LEARNED,
) -> SpeedEstimate:
    """Predict the time of a step, split into parts, and of the whole run."""
    predicted_s = pace.on(plan.data).parts_s(
        plan.zero_stage,
        plan.gradient_accumulation_steps,
        recomputes=plan.activation_checkpointing is ActivationCheckpointing.FULL,
    )
    parts_s = tuple(part * correction.factor for part in predicted_s)
    step_s = sum(parts_s)
    total_s = pace.rates.start_up_s + pace.steps * step_s
    ranks = plan.world_size
    peak = peak_flops(plan.precision, gpu) * kind.relative_speed
    return SpeedEstimate(
        step_s=step_s,
        tokens_per_s=setup.global_batch_size * setup.sequence_length / step_s,
        total_s=total_s,
        device_hours=ranks * total_s / 3600,
        energy_joules=ranks * total_s * gpu.board_power_w * _POWER_OF_BOARD,
        model_flops_utilization=pace.flops / (ranks * peak * step_s),
        parts_s=tuple(zip(_PARTS, parts_s, strict=True)),
        correction=correction.factor,
        runs=correction.runs,
        nominal_steps=0 if setup.optimizer_steps else NOMINAL_STEPS,
    )


def training_flops(setup: TrainingSetup) -> float:
    """Return the operations of one optimizer step: forward, and backward at twice that.

    2 per weight and token, plus 4 s per attention channel, halved where attention is causal.
    A frozen weight has no gradient of its own, which saves one of three products.
    """
    model = setup.model
    weights = (
        model.active_matrix_parameters * model.num_layers + model.vocab_size * model.hidden_size
    )
    products = 3 * weights
    if model.adapters is not None:
        products = 2 * weights + 3 * model.num_trained_parameters
    causal = 0.5 if setup.attention is Attention.SDPA else 1.0
    inner = model.num_heads * model.head_dim
    scores = 4 * model.num_layers * inner * setup.sequence_length * causal
    return (2.0 * products + 3.0 * scores) * setup.sequence_length * setup.global_batch_size


def _traffic_bytes(setup: TrainingSetup, element: int, tensor: int, priors: Priors) -> float:
    """Return what everything but matrix products reads and writes in a step.

    Norms and sums are as wide as the hidden states on every tensor-parallel rank.
    """
    model = setup.model
    inner = model.intermediate_size * (1 if model.experts is None else model.experts.per_token)
    width = 12 * model.hidden_size + 5 * inner / tensor
    passes = priors.activation_passes * width
    if setup.attention is Attention.EAGER:
        passes += priors.score_passes * model.num_heads * setup.sequence_length / tensor
    tokens = setup.sequence_length * setup.global_batch_size
    return tokens * passes * element * model.num_layers


def _reduced_bytes(setup: TrainingSetup, element: int, tensor: int) -> float:
    """Return what a rank sends to sum up one hidden state of every layer over all ranks."""
    tokens = setup.sequence_length * setup.global_batch_size
    size = tokens * setup.model.hidden_size * element * setup.model.num_layers
    return 2 * (tensor - 1) / tensor * size
