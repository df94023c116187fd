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
)

_FP32: Final = 4
_INT64: Final = 8
_COUNTABLE: Final = 2**55  # bytes; beyond it sums would leave 64 bits, and no device comes near
_SUB_GROUP_ELEMENTS: Final = 500_000_000  # below DeepSpeed's, whose groups end at a parameter
_SCALARS: Final = 20 * 512  # losses, norms, scales: a block each


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest allocated bytes of a rank, where that is, and what it is made of."""

    allocated: int
    moment: str
    terms: tuple[MemoryTerm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatesKey:
    stage: int
    ranks: int
    element: int
    bucket: int
    threshold: int
    cuda: bool


@dataclass(frozen=True, slots=True)
class _Moment:
    name: str
    gradients: int
    saved: int
    work: int

    @property
    def live(self) -> int:
        return self.gradients + self.saved + self.work


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
    *,
    cuda: bool = False,
) -> Peak:
    """Predict the peak of the worst rank of a data-parallel run.

    ``cuda``: AdamW updates many tensors at once there (foreach), and ZeRO-3 gathers one bucket
    ahead; on a CPU neither is so.
    """
    floor = floor_bytes(model, length, plan)
    if floor > _COUNTABLE:
        return Peak(floor, "every moment", (MemoryTerm(name="at least", size_bytes=floor),))
    parts = _parts(model, attention, length, plan, cuda=cuda)
    highest = max(
        (
            _forward(parts),
            _loss(parts),
            _layers_backward(parts),
            _embedding_backward(parts),
            _reduction(parts),
            _optimizer_step(parts),
        ),
        key=lambda moment: moment.live,
    )
    if parts.states.initialisation > parts.base + highest.live:
        size = parts.states.initialisation
        terms = (MemoryTerm(name="model and engine while being built", size_bytes=size),)
        return Peak(size, "initialisation", terms)
    return _named(parts, highest)


def floor_bytes(model: ModelArchitecture, length: int, plan: ParallelismPlan) -> int:
    """Return a lower bound of the peak that costs nothing to compute.

    Weights and Adam's states, with the larger of the optimizer step and the loss (12 bytes a
    logit, one kept tensor a layer).
    """
    element = element_bytes(plan.precision)
    parameters = model.num_parameters
    own = parameters // (plan.data if plan.zero_stage else 1)
    shards = plan.data if plan.zero_stage == 3 else 1
    tokens = plan.micro_batch_size * length
    kept = tokens * model.hidden_size * model.num_layers * element
    loss = 12 * tokens * model.vocab_size + kept
    step = 12 * min(own, _SUB_GROUP_ELEMENTS) if plan.zero_stage else 0
    return element * (parameters // shards) + 8 * own + max(step, loss)


def persistence_threshold(model: ModelArchitecture) -> int:
    """Return the elements up to which ZeRO-3 keeps a parameter whole: norms and biases."""
    widest = max(model.intermediate_size, 3 * model.hidden_size)
    return widest if model.attention_bias or model.mlp_bias else model.hidden_size


def _parts(
    model: ModelArchitecture,
    attention: Attention,
    length: int,
    plan: ParallelismPlan,
    *,
    cuda: bool,
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
            sizes,
            _StatesKey(
                stage=plan.zero_stage,
                ranks=plan.data,
                element=element,
                bucket=bucket,
                threshold=persistence_threshold(model),
                cuda=cuda,
            ),
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
def _states(sizes: tuple[int, ...], plan: _StatesKey) -> States:
    return states(
        tuple(size // plan.element for size in sizes),
        stage=plan.stage,
        ranks=plan.ranks,
        element=plan.element,
        bucket=plan.bucket,
        persistence_threshold=plan.threshold,
        cuda=plan.cuda,
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


def _forward(parts: _Parts) -> _Moment:
    saved = (parts.layers - 1) * parts.block.kept
    work = parts.forward_only + parts.block.forward_peak
    return _Moment("the last layer's forward", parts.track.start, saved, work)


def _loss(parts: _Parts) -> _Moment:
    saved = parts.layers * parts.block.kept
    held, work = _highest(parts.ends.last, parts.track, 0)
    if parts.track.start + parts.ends.forward_peak > held + work:
        held, work = parts.track.start, parts.ends.forward_peak
    return _Moment("the loss", held, saved, work)


def _layers_backward(parts: _Parts) -> _Moment:
    """Take the highest layer: saved activations shrink while gradients grow."""
    profile, track = parts.block.backward, parts.track
    count = len(profile.parameters)
    first = len(parts.ends.last.parameters)
    end = first + count * parts.layers
    work = np.asarray(profile.peaks + profile.handing)
    held = np.empty((parts.layers, 2 * count + 1), dtype=np.int64)
    held[:, :count] = track.before[first:end].reshape(parts.layers, count)
    held[:, count] = track.before[first + count : end + 1 : count]
    held[:, count + 1 :] = track.handing[first:end].reshape(parts.layers, count)
    saved = parts.block.kept * np.arange(parts.layers - 1, -1, -1)[:, None]
    layer, point = divmod(int((held + saved + work).argmax()), held.shape[1])
    return _Moment(
        "a layer's backward",
        int(held[layer, point]) + parts.ends.waiting,
        int(saved[layer, 0]),
        int(work[point]),
    )


def _embedding_backward(parts: _Parts) -> _Moment:
    offset = len(parts.track.handing) - len(parts.ends.first.parameters)
    held, work = _highest(parts.ends.first, parts.track, offset)
    return _Moment("the embedding's backward", held, 0, work)


def _reduction(parts: _Parts) -> _Moment:
    return _Moment("gradient reduction", parts.track.after, 0, 0)


def _optimizer_step(parts: _Parts) -> _Moment:
    held = int(parts.track.before[-1]) if parts.states.step_keeps_gradients else 0
    gradients = held + parts.states.step_gradients
    return _Moment("the optimizer step", gradients, 0, parts.states.step_temporaries)


def _highest(profile: Backward, track: GradientTrack, offset: int) -> tuple[int, int]:
    """Return gradients held and working bytes at the highest point of a backward pass."""
    count = len(profile.parameters)
    held = (
        track.before[offset : offset + count + 1].tolist()
        + track.handing[offset : offset + count].tolist()
    )
    return max(zip(held, profile.peaks + profile.handing, strict=True), key=sum)


def _named(parts: _Parts, moment: _Moment) -> Peak:
    resident = parts.states
    named = (
        ("weights", resident.weights),
        ("fp32 master weights", resident.master),
        ("Adam moments", resident.moments),
        ("ZeRO buffers", resident.buffers),
        ("gradients", moment.gradients),
        ("saved activations", moment.saved),
        ("working memory", moment.work),
        ("batch and constants", parts.common),
    )
    terms = tuple(MemoryTerm(name=name, size_bytes=size) for name, size in named if size)
    return Peak(parts.base + moment.live, moment.name, terms)
