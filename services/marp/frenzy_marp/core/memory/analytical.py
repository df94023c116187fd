"""The analytical mode: the peak as the highest of the moments of a training step."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from frenzy_marp.core.memory.blocks import Shape, element_bytes
from frenzy_marp.core.memory.gradients import GradientTrack, gradient_track
from frenzy_marp.core.memory.profiles import (
    Backward,
    BlockProfile,
    EndsProfile,
    block_profile,
    ends_profile,
)
from frenzy_marp.core.memory.states import States, states
from frenzy_marp.core.memory.tape import rounded
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    MemoryTerm,
    ParallelismPlan,
    Precision,
)

_FP32: Final = 4
_INT64: Final = 8
_SCALARS: Final = 20 * 512  # losses, norms, scales: a block each


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest allocated bytes of a rank, where that is, and what it is made of."""

    allocated: int
    moment: str
    terms: tuple[MemoryTerm, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    states: States
    block: BlockProfile
    ends: EndsProfile
    track: GradientTrack
    layers: int
    common: int  # inputs and what all layers share, from forward to the end of backward
    forward_only: int

    @property
    def base(self) -> int:
        return self.states.resident + self.common


def predict_peak(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    plan: ParallelismPlan,
) -> Peak:
    """Predict the peak of the worst rank of a data-parallel run."""
    parts = _parts(model, attention, length, plan)
    moments = [
        _initialisation(parts),
        _forward(parts),
        _loss(parts),
        _layers_backward(parts),
        _embedding_backward(parts),
        _reduction(parts),
        _optimizer_step(parts),
    ]
    return max(moments, key=lambda moment: moment.allocated)


def persistence_threshold(model: ModelArchitecture) -> int:
    """Return the elements up to which ZeRO-3 keeps a parameter whole: norms and biases."""
    widest = max(model.intermediate_size, 3 * model.hidden_size)
    return widest if model.attention_bias or model.mlp_bias else model.hidden_size


def _parts(
    model: ModelArchitecture, attention: Attention, length: int, plan: ParallelismPlan
) -> _Parts:
    element = element_bytes(plan.precision)
    shape = Shape(model, attention, plan.micro_batch_size, length, element)
    gathers = plan.zero_stage == 3 and plan.data > 1
    block = _block(shape, plan.activation_checkpointing, gathers)
    ends = _ends(shape, gathers)
    sizes = (
        ends.last.parameters + model.num_layers * block.backward.parameters + ends.first.parameters
    )
    bucket = plan.reduce_bucket_elements
    return _Parts(
        states=_states(
            sizes, plan.zero_stage, plan.data, element, bucket, persistence_threshold(model)
        ),
        block=block,
        ends=ends,
        track=gradient_track(
            sizes,
            stage=plan.zero_stage,
            ranks=plan.data,
            element=element,
            bucket=bucket,
            accumulates=plan.gradient_accumulation_steps > 1,
        ),
        layers=model.num_layers,
        common=_common(shape, plan.activation_checkpointing),
        forward_only=shape.activation(model.hidden_size) + _mask(shape),
    )


@lru_cache(maxsize=1024)
def _block(
    shape: Shape,
    checkpointing: ActivationCheckpointing,
    gathers: bool,  # noqa: FBT001 - a cache key
) -> BlockProfile:
    return block_profile(shape, checkpointing, gathers=gathers)


@lru_cache(maxsize=1024)
def _ends(shape: Shape, gathers: bool) -> EndsProfile:  # noqa: FBT001 - a cache key
    return ends_profile(shape, gathers=gathers)


@lru_cache(maxsize=1024)
def _states(
    sizes: tuple[int, ...], stage: int, ranks: int, element: int, bucket: int, threshold: int
) -> States:
    return states(
        tuple(size // element for size in sizes),
        stage=stage,
        ranks=ranks,
        element=element,
        bucket=bucket,
        persistence_threshold=threshold,
    )


def _common(shape: Shape, checkpointing: ActivationCheckpointing) -> int:
    tokens = rounded(_INT64 * shape.tokens)
    rotary = 0
    if shape.model.family is Family.LLAMA:
        rotary = 2 * rounded(shape.length * shape.model.head_dim * shape.element)
    checkpointed = checkpointing is ActivationCheckpointing.FULL
    return tokens + rotary + _SCALARS + (_mask(shape) if checkpointed else 0)


def _mask(shape: Shape) -> int:
    """Return the causal mask that eager attention adds to the scores."""
    if shape.attention is Attention.SDPA:
        return 0
    return rounded(shape.sequences * shape.length * shape.length * shape.element)


def _initialisation(parts: _Parts) -> Peak:
    return _peak("initialisation", parts, parts.states.initialisation, base=0)


def _forward(parts: _Parts) -> Peak:
    saved = (parts.layers - 1) * parts.block.kept
    live = parts.forward_only + saved + parts.block.forward_peak + parts.track.start
    return _peak("last layer's forward", parts, live)


def _loss(parts: _Parts) -> Peak:
    saved = parts.layers * parts.block.kept
    forward = saved + parts.ends.forward_peak + parts.track.start
    backward = saved + _highest(parts.ends.last, parts.track, 0)
    return _peak("loss", parts, max(forward, backward))


def _layers_backward(parts: _Parts) -> Peak:
    """Take the highest layer: saved activations shrink while gradients grow."""
    profile, track = parts.block.backward, parts.track
    count = len(profile.parameters)
    starts = len(parts.ends.last.parameters) + count * np.arange(parts.layers)
    steps = np.arange(count + 1)
    between = np.asarray(profile.peaks) + track.before[starts[:, None] + steps]
    handing = np.asarray(profile.handing) + track.handing[starts[:, None] + steps[:-1]]
    highest = np.maximum(between.max(axis=1), handing.max(axis=1))
    saved = parts.block.kept * np.arange(parts.layers - 1, -1, -1)
    live = int((highest + saved).max()) + parts.ends.waiting
    return _peak("layer's backward", parts, live)


def _embedding_backward(parts: _Parts) -> Peak:
    offset = len(parts.track.handing) - len(parts.ends.first.parameters)
    return _peak("embedding's backward", parts, _highest(parts.ends.first, parts.track, offset))


def _reduction(parts: _Parts) -> Peak:
    return _peak("gradient reduction", parts, parts.track.after)


def _optimizer_step(parts: _Parts) -> Peak:
    held = int(parts.track.before[-1]) if parts.states.step_keeps_gradients else 0
    live = held + parts.states.step_gradients + parts.states.step_temporaries
    return _peak("optimizer step", parts, live)


def _highest(profile: Backward, track: GradientTrack, offset: int) -> int:
    count = len(profile.parameters)
    between = np.asarray(profile.peaks) + track.before[offset : offset + count + 1]
    handing = np.asarray(profile.handing) + track.handing[offset : offset + count]
    return int(max(between.max(), handing.max()))


def _peak(moment: str, parts: _Parts, live: int, base: int | None = None) -> Peak:
    allocated = live + (parts.base if base is None else base)
    return Peak(allocated, moment, ())
