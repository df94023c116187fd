"""A first speed model: roofline compute, optimizer bandwidth, ring communication.

Ranking is what it is for; absolute times are within tens of per cent at best (design: MARP
section 5). Every constant is a prior and is replaced by what runs report, later.
"""

from dataclasses import dataclass
from typing import Final

from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture, TrainingSetup
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
_OPERATORS_PER_LAYER: Final = {Family.GPT2: 90, Family.LLAMA: 150}  # forward and backward


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """What one device does per second, and what one operator or message costs, in seconds."""

    flops: float
    bandwidth: float
    operator_s: float
    message_s: float
    start_up_s: float


def estimate_speed(
    setup: TrainingSetup, plan: ParallelismPlan, kind: KindSummary, gpu: GpuModel
) -> SpeedEstimate:
    """Predict the time of a step, split into parts, and of the whole run."""
    rates = _rates(setup, plan, kind, gpu)
    parts = {
        "compute": _compute_s(setup, plan, rates),
        "launch": _launch_s(setup.model, plan, rates),
        "optimizer": _optimizer_s(setup.model, plan, rates),
        "communication": _communication_s(setup.model, plan, rates, _link(kind, plan, gpu)),
    }
    step_s = sum(parts.values())
    tokens = setup.global_batch_size * setup.sequence_length
    steps = setup.optimizer_steps or NOMINAL_STEPS
    total_s = rates.start_up_s + steps * step_s
    ranks = plan.world_size
    peak_flops = _peak_flops(plan.precision, gpu) * kind.relative_speed
    return SpeedEstimate(
        step_s=step_s,
        tokens_per_s=tokens / step_s,
        total_s=total_s,
        device_hours=ranks * total_s / 3600,
        energy_joules=ranks * total_s * gpu.board_power_w * _POWER_OF_BOARD,
        model_flops_utilization=training_flops(setup) / (ranks * peak_flops * step_s),
        parts_s=tuple(parts.items()),
    )


def training_flops(setup: TrainingSetup) -> float:
    """Return the operations of one optimizer step: forward, and backward at twice that.

    2 per weight and token, plus 4 s per attention channel, halved where attention is causal.
    """
    model = setup.model
    weights = _layer_weights(model) * model.num_layers + model.vocab_size * model.hidden_size
    causal = 0.5 if setup.attention is Attention.SDPA else 1.0
    inner = model.num_heads * model.head_dim
    scores = 4 * model.num_layers * inner * setup.sequence_length * causal
    return 3.0 * (2 * weights + scores) * setup.sequence_length * setup.global_batch_size


def _rates(setup: TrainingSetup, plan: ParallelismPlan, kind: KindSummary, gpu: GpuModel) -> _Rates:
    bandwidth = gpu.bandwidth * _BANDWIDTH_EFFICIENCY * kind.relative_speed
    peak = _peak_flops(plan.precision, gpu) * kind.relative_speed
    if gpu.emulated or kind.emulated:
        # Matrix kernels of one core reach their rate; the accountant adds to every operator.
        return _Rates(
            flops=peak,
            bandwidth=bandwidth,
            operator_s=25e-6 / kind.relative_speed,
            message_s=0.4e-3,
            start_up_s=15.0,
        )
    return _Rates(
        flops=peak * _efficiency(setup.model),
        bandwidth=bandwidth,
        operator_s=5e-6,
        message_s=20e-6 if plan.data <= kind.node_counts[0] else 30e-6,
        start_up_s=60.0,
    )


def _efficiency(model: ModelArchitecture) -> float:
    """Return the share of the peak that eager code reaches; wider models come closer.

    Fitted to 0.7 times the published MFU of FSDP runs (125M: 0.45, 1.3B: 0.60, 7B: 0.64).
    """
    return 0.45 * model.hidden_size / (model.hidden_size + 400)


def _peak_flops(precision: Precision, gpu: GpuModel) -> float:
    return gpu.fp32_flops if precision is Precision.FP32 else gpu.tensor_flops


def _compute_s(setup: TrainingSetup, plan: ParallelismPlan, rates: _Rates) -> float:
    recomputed = plan.activation_checkpointing is ActivationCheckpointing.FULL
    flops = training_flops(setup) * (4 / 3 if recomputed else 1.0) / plan.world_size
    element = 4 if plan.precision is Precision.FP32 else 2
    model = setup.model
    width = 12 * model.hidden_size + 5 * model.intermediate_size
    tokens = setup.sequence_length * setup.global_batch_size / plan.world_size
    moved = tokens * width * element * model.num_layers * _PASSES_OVER_ACTIVATIONS
    return max(flops / rates.flops, moved / rates.bandwidth)


def _launch_s(model: ModelArchitecture, plan: ParallelismPlan, rates: _Rates) -> float:
    operators = _OPERATORS_PER_LAYER[model.family] * model.num_layers
    recomputed = plan.activation_checkpointing is ActivationCheckpointing.FULL
    per_micro_step = operators * (4 / 3 if recomputed else 1.0)
    return plan.gradient_accumulation_steps * per_micro_step * rates.operator_s


def _optimizer_s(model: ModelArchitecture, plan: ParallelismPlan, rates: _Rates) -> float:
    own = model.num_parameters / (1 if plan.zero_stage == 0 else plan.data)
    return own * _BYTES_PER_OPTIMIZED_PARAMETER / rates.bandwidth


def _communication_s(
    model: ModelArchitecture, plan: ParallelismPlan, rates: _Rates, link: float
) -> float:
    """Add up ring collectives: one moves (n-1)/n of the parameters' bytes through every link.

    Stages 0 and 1 reduce once a step, stage 2 every micro-step; stage 3 gathers for forward,
    backward (and recomputation) and scatters gradients, every micro-step.
    """
    if plan.data == 1:
        return 0.0
    size = model.num_parameters * (4 if plan.precision is Precision.FP32 else 2)
    ring_s = (plan.data - 1) / plan.data * size / link
    micro_steps = plan.gradient_accumulation_steps
    buckets = -(-model.num_parameters // plan.reduce_bucket_elements)
    hops = plan.data - 1
    if plan.zero_stage < 2:
        return 2 * ring_s + 2 * buckets * hops * rates.message_s
    if plan.zero_stage == 2:
        messages = (2 * micro_steps + 1) * buckets
        return (2 * micro_steps + 1) * ring_s + messages * hops * rates.message_s
    gathers = 3 if plan.activation_checkpointing is ActivationCheckpointing.FULL else 2
    weights = 7 * model.num_layers  # each is gathered on its own
    messages = micro_steps * (gathers * weights + buckets)
    return micro_steps * (gathers + 1) * ring_s + messages * hops * rates.message_s


def _link(kind: KindSummary, plan: ParallelismPlan, gpu: GpuModel) -> float:
    """Return the slowest link of the best placement, bytes per second."""
    inside = plan.data <= kind.node_counts[0]
    return (gpu.link if inside else min(gpu.link, _NETWORK_BYTES_S)) * _LINK_EFFICIENCY


def _layer_weights(model: ModelArchitecture) -> int:
    inner = (2 * model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    matrices = 3 if model.family is Family.LLAMA else 2
    return model.hidden_size * (inner + matrices * model.intermediate_size)
