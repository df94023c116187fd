"""The allocated peak of a run: the highest of its moments on the rank that was read."""

from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.activations import BlockBytes, block_bytes
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.geometry import Geometry, geometries
from frenzy_marp.core.cases.loss import loss_bytes
from frenzy_marp.core.cases.states import StateBytes, state_bytes, weight_bytes

_LOADING = "loading"
RETAINED = "retained inputs"
_TOGETHER = "gradients put together"
# DeepSpeed's stage3_max_reuse_distance, 1e9, counts forward and backward: it gathers the last half
# of that once for both (partitioned_param_coordinator.py, __params_to_release).
_REUSED_PARAMETERS = 500_000_000
_GATHERING = frozenset({word.Sharding.ZERO3, word.Sharding.FSDP, word.Sharding.FSDP2})


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of a step and the bytes of each term then."""

    name: str
    terms: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Return the bytes of the moment."""
        return sum(size for _, size in self.terms)


@dataclass(frozen=True, slots=True)
class _Parts:
    run: Run
    geometry: Geometry
    states: StateBytes
    block: BlockBytes
    gathered_block: float
    gathered_at_loss: float
    gathered_root: float  # whole until backward ends
    gathered_for_reuse: float  # of the last blocks, from forward to their backward

    @property
    def saved_once(self) -> float:
        """Return the bytes that all blocks of the rank keep for one micro-batch."""
        return self.block.kept * self.geometry.tokens * self.geometry.layers


def predict_moments(run: Run) -> tuple[Moment, ...]:
    """Return the moments of the rank with the highest peak, in the order of a step."""
    ranks = [_moments(_parts(run, geometry)) for geometry in geometries(run)]
    return max(ranks, key=lambda moments: max(moment.total for moment in moments))


def predict_allocated(run: Run) -> Moment:
    """Return the highest moment."""
    return max(predict_moments(run), key=lambda moment: moment.total)


def _parts(run: Run, geometry: Geometry) -> _Parts:
    states, blocks = state_bytes(run, geometry), block_bytes(run)
    sharding = run.parallelism.sharding
    if sharding not in _GATHERING or run.parallelism.shard_degree == 1:
        return _Parts(run, geometry, states, blocks, 0.0, 0.0, 0.0, 0.0)
    size = run.training.compute_dtype.size_bytes
    block = float(geometry.block * size)
    if run.training.quantization is not None:
        block = weight_bytes(run, geometry.block)
    if run.training.framework is word.Framework.THUNDER:  # gathers every matrix for its product
        return _Parts(run, geometry, states, blocks, block, 0.0, 0.0, 0.0)
    if sharding is word.Sharding.FSDP2:  # embedding and head are units; the last block stays whole
        at_loss = float(geometry.head * size) + block
        return _Parts(run, geometry, states, blocks, block, at_loss, 0.0, 0.0)
    if sharding is word.Sharding.ZERO3 and run.training.framework is not word.Framework.COLOSSALAI:
        reused = min(float(geometry.total * size), _REUSED_PARAMETERS * size + block)
        return _Parts(run, geometry, states, blocks, block, reused, 0.0, reused)
    ends = float(geometry.ends * size)  # FSDP1's root unit is never sharded again
    return _Parts(run, geometry, states, blocks, block, ends, ends, 0.0)


def _moments(parts: _Parts) -> tuple[Moment, ...]:
    if parts.run.training.load_time_peak:
        return (_loading(parts),)
    return (_loading(parts), _loss(parts), *_backward(parts), _last_gradients(parts), _step(parts))


def _resident(parts: _Parts) -> tuple[tuple[str, float], ...]:
    states = parts.states
    return (
        ("weights", states.weights),
        ("master weights", states.master),
        ("optimizer", states.optimizer),
        ("buffers", states.buffers),
    )


def _loading(parts: _Parts) -> Moment:
    """Return the weights while they are loaded: whole on every rank where a recipe does so.

    litgpt's multi-device adapter recipe reads the checkpoint onto every device before it shards.
    """
    training = parts.run.training
    sharded = parts.run.parallelism.shard_degree > 1
    recipe = training.framework is word.Framework.LITGPT and training.adapter is not None
    size = parts.states.weights
    if training.load_time_peak or (recipe and sharded):
        whole = float(parts.geometry.total * training.param_dtype.size_bytes)
        size = whole + (size + parts.gathered_block if sharded else 0.0)  # a unit is made flat
    return Moment(_LOADING, (("weights", size),))


def _loss(parts: _Parts) -> Moment:
    states, geometry = parts.states, parts.geometry
    on_rank = geometry.stage == parts.run.parallelism.pipeline - 1
    logits = loss_bytes(parts.run) * geometry.tokens if on_rank else 0.0
    return Moment(
        "loss",
        (
            *_resident(parts),
            ("gradients", states.gradients if states.persistent_gradients else 0.0),
            ("activations", parts.saved_once * geometry.in_flight),
            ("logits and loss", logits),
            ("gathered weights", max(parts.gathered_at_loss, _gathered_blocks(parts, 0))),
        ),
    )


def _backward(parts: _Parts) -> tuple[Moment, Moment]:
    """Return the first and the last block's backward: activations fall while gradients grow."""
    states, geometry = parts.states, parts.geometry
    # The highest point of a block is at its start, its gradients are whole at its end; sums over
    # a pipeline's micro-batches are there all the time.
    work, fresh = parts.block.work * geometry.tokens, _fresh_gradients(parts)
    work = work + fresh if parts.run.parallelism.pipeline > 1 else max(work, fresh)
    head_share = geometry.head / max(1, geometry.total)
    start = states.gradients if states.persistent_gradients else states.gradients * head_share
    saved = parts.saved_once * geometry.in_flight
    rest = parts.saved_once * max(0.0, geometry.in_flight - 1)
    one = parts.block.kept * geometry.tokens
    return (
        Moment(
            "last block's backward",
            (
                *_resident(parts),
                ("gradients", start),
                ("work of a block", work),
                ("gathered weights", _gathered_in_last_block(parts)),
                ("activations", saved),
            ),
        ),
        Moment(
            "first block's backward",
            (
                *_resident(parts),
                ("gradients", states.gradients),
                ("work of a block", work),
                ("gathered weights", parts.gathered_root + _gathered_blocks(parts, 1)),
                ("activations", rest + one),
                (RETAINED, max(0.0, parts.saved_once - one) * _retained(parts.run)),
            ),
        ),
    )


def _last_gradients(parts: _Parts) -> Moment:
    """Return the end of backward, where the gradients outside the blocks are put together."""
    states, geometry = parts.states, parts.geometry
    together, gathered, late = _put_together(parts)
    rest = parts.saved_once * max(0.0, geometry.in_flight - 1)
    return Moment(
        "end of backward",
        (
            *_resident(parts),
            ("gradients", states.gradients * (1 - late / max(1, geometry.total))),
            ("gathered weights", gathered),
            (_TOGETHER, together),
            ("activations", rest),
        ),
    )


def _put_together(parts: _Parts) -> tuple[float, float, int]:
    """Return bytes that the last gradients need, gathered bytes, and whose shares come of them.

    FSDP1's root unit is one flat parameter: the pieces of its gradient wait for each other and
    are then copied into one, whole, before they are divided. FSDP2 copies the embedding's into
    the reduction's input. DeepSpeed's BF16_Optimizer adds each 16-bit gradient to its fp32 sum
    through an fp32 copy, the largest of which is the embedding's; its stage 1 copies a rank's
    share while all gradients are still there.
    """
    states, geometry, run = parts.states, parts.geometry, parts.run
    sharding, size = run.parallelism.sharding, run.training.compute_dtype.size_bytes
    if parts.gathered_block and run.training.adapter is None:
        if sharding is word.Sharding.FSDP:
            return 2.0 * geometry.ends * size, parts.gathered_root, geometry.ends
        if sharding is word.Sharding.FSDP2:
            reduced = (run.parallelism.reduce_dtype or run.training.grad_dtype).size_bytes
            late = geometry.embedding
            return float(late * (size + reduced)), float(late * size), late
    if states.casts_gradients:
        return 4.0 * max(geometry.embedding, geometry.head), parts.gathered_root, 0
    if states.copies_share and sharding is word.Sharding.ZERO1:
        return states.gradients / run.parallelism.shard_degree, parts.gathered_root, 0
    return 0.0, parts.gathered_root, 0


def _gathered_in_last_block(parts: _Parts) -> float:
    return max(parts.gathered_for_reuse, parts.gathered_root + _gathered_blocks(parts, 2))


def _gathered_blocks(parts: _Parts, count: int) -> float:
    """Return the bytes of gathered blocks: all of them where forward does not shard again."""
    if parts.run.parallelism.reshard_after_forward:
        return count * parts.gathered_block
    return parts.geometry.layers * parts.gathered_block


def _retained(run: Run) -> int:
    """Return how often FSDP1 still holds the other blocks' inputs at the end of backward.

    With adapters each of them is an FSDP unit of its own inside the block's; their hooks keep the
    recomputed inputs, beside the checkpoint's own, until the root's backward ends.
    """
    training = run.training
    nested = run.parallelism.sharding is word.Sharding.FSDP and training.adapter is not None
    return 2 if nested and training.checkpointing is word.Checkpointing.FULL else 0


def _fresh_gradients(parts: _Parts) -> float:
    """Return a block's whole gradients before they are divided, and the reduction's input."""
    training = parts.run.training
    if parts.gathered_block == 0.0 or training.adapter is not None:
        return 0.0
    size = training.compute_dtype.size_bytes
    reduced = (parts.run.parallelism.reduce_dtype or training.grad_dtype).size_bytes
    if parts.run.parallelism.pipeline > 1:  # summed whole, reduced after the last micro-batch
        return float(parts.geometry.layers * parts.geometry.block * reduced)
    pieces = size if parts.run.parallelism.sharding is word.Sharding.FSDP else 0  # made one
    return float(parts.geometry.block * (pieces + size + (0 if reduced == size else reduced)))


def _step(parts: _Parts) -> Moment:
    states = parts.states
    return Moment(
        "optimizer step",
        (*_resident(parts), ("gradients", states.step_gradients), ("update", states.step)),
    )


def spread_bytes(moments: tuple[Moment, ...]) -> float:
    """Return the bytes if no moment could reuse what another one freed: every term at its most.

    The caching allocator keeps freed blocks of one size for that size: what it reserves lies
    between the highest moment and this sum.
    """
    most: dict[str, float] = {}
    steps = [moment for moment in moments if moment.name != _LOADING]
    for moment in steps:
        for name, size in moment.terms:
            if name not in {RETAINED, _TOGETHER}:  # cut from what the logits left
                most[name] = max(most.get(name, 0.0), size)
    return max(sum(most.values()), *(moment.total for moment in moments))
