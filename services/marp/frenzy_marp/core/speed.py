"""A first speed model: roofline compute, optimizer bandwidth, ring communication.

Ranking is what it is for; absolute times are within tens of per cent at best. Every constant is
a prior; what finished runs teach comes on top (``core/learning.py``).
"""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.learning_errors import NOTHING_LEARNED, Correction
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Attention, ModelArchitecture, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    ParallelismPlan,
    Precision,
    SpeedEstimate,
)

NOMINAL_STEPS: Final = 1000  # of a run whose length nobody knows

_BANDWIDTH_EFFICIENCY: Final = 0.8
_LINK_EFFICIENCY: Final = 0.8
_NETWORK_BYTES_S: Final = 12.5e9  # between nodes: 100 Gb/s, the usual cluster network
_POWER_OF_BOARD: Final = 0.8  # drawn while training
_BYTES_PER_OPTIMIZED_PARAMETER: Final = 32  # reads and writes of AdamW in fp32
_PASSES_OVER_ACTIVATIONS: Final = 3  # written, read, and their gradients
_PARTS: Final = ("compute", "launch", "optimizer", "communication")
_OPERATORS_PER_LAYER: Final = (90, 150)  # forward and backward: plain, and with a gated MLP


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """What one device does per second, and what one operator or message costs, in seconds."""

    flops: float
    bandwidth: float
    operator_s: float
    messages_s: tuple[float, float]  # inside a node, and beyond
    start_up_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a job runs on one kind in one precision: what all its plans have in common.

    Pairs are without and with recomputation. ``compute_s`` and ``optimizer_s`` are of a step on
    one device, ``launch_s`` of a micro-step; links and messages are inside a node, and beyond.
    """

    compute_s: tuple[float, float]
    launch_s: tuple[float, float]
    optimizer_s: float
    start_up_s: float
    steps: int
    parameter_bytes: int
    gathered: int  # weights that ZeRO-3 gathers, each on its own
    buckets: int
    node_devices: int
    links: tuple[float, float]
    messages_s: tuple[float, float]

    def on(self, devices: int) -> "Gang":
        """Return the pace of so many devices together."""
        beyond = devices > self.node_devices
        hops = devices - 1
        return Gang(
            pace=self,
            compute_s=(self.compute_s[0] / devices, self.compute_s[1] / devices),
            optimizer_s=(self.optimizer_s, self.optimizer_s / devices),
            ring_s=hops / devices * self.parameter_bytes / self.links[beyond],
            hops_s=hops * self.messages_s[beyond],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The pace of a number of devices. ``optimizer_s``: with whole states, and with sharded ones.

    ``ring_s`` is what a ring collective takes: it moves (n-1)/n of the parameters' bytes through
    every link; ``hops_s`` what one message takes to go around.
    """

    pace: Pace
    compute_s: tuple[float, float]
    optimizer_s: tuple[float, float]
    ring_s: float
    hops_s: float

    def parts_s(
        self, stage: int, micro_steps: int, *, recomputes: bool
    ) -> tuple[float, float, float, float]:
        """Return the seconds of a step: compute, launch, optimizer, communication."""
        return (
            self.compute_s[recomputes],
            self.pace.launch_s[recomputes] * micro_steps,
            self.optimizer_s[stage > 0],
            self._communication_s(stage, micro_steps, recomputes=recomputes),
        )

    def total_s(
        self, stage: int, micro_steps: int, *, recomputes: bool, slowness: float = 1.0
    ) -> float:
        """Return the seconds of the whole run; more micro-steps never take less.

        ``slowness`` is what runs have taught: observed over predicted time of a step.
        """
        step_s = sum(self.parts_s(stage, micro_steps, recomputes=recomputes))
        return self.pace.start_up_s + self.pace.steps * step_s * slowness

    def _communication_s(self, stage: int, micro_steps: int, *, recomputes: bool) -> float:
        """Add up collectives.

        Stages 0 and 1 reduce once a step, stage 2 every micro-step; stage 3 gathers for forward,
        backward (and recomputation) and scatters gradients, every micro-step.
        """
        if stage < 3:
            rings = 2 if stage < 2 else 2 * micro_steps + 1
            return rings * (self.ring_s + self.pace.buckets * self.hops_s)
        gathers = 3 if recomputes else 2
        messages = gathers * self.pace.gathered + self.pace.buckets
        return micro_steps * ((gathers + 1) * self.ring_s + messages * self.hops_s)


def pace(
    setup: TrainingSetup, kind: KindSummary, gpu: GpuModel, precision: Precision, bucket: int
) -> Pace:
    """Work out what every plan of a job on a kind has in common; ``bucket`` is in elements."""
    model = setup.model
    element = 4 if precision is Precision.FP32 else 2
    rates = _rates(setup, precision, kind, gpu)
    launch_s = _OPERATORS_PER_LAYER[model.structure.gated] * model.num_layers * rates.operator_s
    network = min(gpu.link, _NETWORK_BYTES_S)
    return Pace(
        compute_s=(
            _compute_s(setup, element, rates, recomputed=1.0),
            _compute_s(setup, element, rates, recomputed=4 / 3),
        ),
        launch_s=(launch_s, launch_s * 4 / 3),
        optimizer_s=model.num_parameters * _BYTES_PER_OPTIMIZED_PARAMETER / rates.bandwidth,
        start_up_s=rates.start_up_s,
        steps=setup.optimizer_steps or NOMINAL_STEPS,
        parameter_bytes=model.num_parameters * element,
        gathered=7 * model.num_layers,
        buckets=-(-model.num_parameters // bucket),
        node_devices=kind.node_counts[0],
        links=(gpu.link * _LINK_EFFICIENCY, network * _LINK_EFFICIENCY),
        messages_s=rates.messages_s,
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
    total_s = pace.start_up_s + pace.steps * step_s
    ranks = plan.world_size
    peak_flops = _peak_flops(plan.precision, gpu) * kind.relative_speed
    return SpeedEstimate(
        step_s=step_s,
        tokens_per_s=setup.global_batch_size * setup.sequence_length / step_s,
        total_s=total_s,
        device_hours=ranks * total_s / 3600,
        energy_joules=ranks * total_s * gpu.board_power_w * _POWER_OF_BOARD,
        model_flops_utilization=training_flops(setup) / (ranks * peak_flops * step_s),
        parts_s=tuple(zip(_PARTS, parts_s, strict=True)),
        correction=correction.factor,
        runs=correction.runs,
    )


def training_flops(setup: TrainingSetup) -> float:
    """Return the operations of one optimizer step: forward, and backward at twice that.

    2 per weight and token, plus 4 s per attention channel, halved where attention is causal.
    """
    model = setup.model
    weights = (
        model.layer_matrix_parameters * model.num_layers + model.vocab_size * model.hidden_size
    )
    causal = 0.5 if setup.attention is Attention.SDPA else 1.0
    inner = model.num_heads * model.head_dim
    scores = 4 * model.num_layers * inner * setup.sequence_length * causal
    return 3.0 * (2 * weights + scores) * setup.sequence_length * setup.global_batch_size


def _rates(setup: TrainingSetup, precision: Precision, kind: KindSummary, gpu: GpuModel) -> _Rates:
    bandwidth = gpu.bandwidth * _BANDWIDTH_EFFICIENCY * kind.relative_speed
    peak = _peak_flops(precision, gpu) * kind.relative_speed
    if gpu.emulated or kind.emulated:
        # Matrix kernels of one core reach their rate; the accountant adds to every operator.
        return _Rates(
            flops=peak,
            bandwidth=bandwidth,
            operator_s=25e-6 / kind.relative_speed,
            messages_s=(0.4e-3, 0.4e-3),
            start_up_s=15.0,
        )
    return _Rates(
        flops=peak * _efficiency(setup.model),
        bandwidth=bandwidth,
        operator_s=5e-6,
        messages_s=(20e-6, 30e-6),
        start_up_s=60.0,
    )


def _efficiency(model: ModelArchitecture) -> float:
    """Return the share of the peak that eager code reaches; wider models come closer.

    Fitted to 0.7 times the published MFU of FSDP runs (125M: 0.45, 1.3B: 0.60, 7B: 0.64).
    """
    return 0.45 * model.hidden_size / (model.hidden_size + 400)


def _peak_flops(precision: Precision, gpu: GpuModel) -> float:
    return gpu.fp32_flops if precision is Precision.FP32 else gpu.tensor_flops


def _compute_s(setup: TrainingSetup, element: int, rates: _Rates, *, recomputed: float) -> float:
    """Return the seconds of a step's matrix products, or of its traffic where that is longer."""
    model = setup.model
    width = 12 * model.hidden_size + 5 * model.intermediate_size
    tokens = setup.sequence_length * setup.global_batch_size
    moved = tokens * width * element * model.num_layers * _PASSES_OVER_ACTIVATIONS
    return max(training_flops(setup) * recomputed / rates.flops, moved / rates.bandwidth)
