"""Where parameter gradients live during backward, by ZeRO stage (DeepSpeed 0.19.8).

Sources: runtime/zero/stage_1_and_2.py (setup_buckets, reduce_independent_p_g_buckets_and_
remove_grads, copy_grads_in_partition, reduce_gradients), runtime/zero/stage3.py
(__add_grad_to_ipg_bucket, __reduce_and_partition_ipg_grads), runtime/engine.py
(buffered_allreduce_fallback).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.int64]

_UNSHARDED_BUCKET_ELEMENTS: Final = 500_000_000  # MEMORY_OPT_ALLREDUCE_SIZE, engine.py


@dataclass(frozen=True, slots=True)
class GradientTrack:
    """Bytes of gradients during the micro-step that holds most.

    ``before[k]``: while ``k`` gradients have been handed over. ``handing[k]``: at the moment
    when gradient ``k`` is (itself not included). ``start``: at the micro-step's forward.
    ``after``: highest while gradients are reduced after backward, activations gone.
    """

    before: Bytes
    handing: Bytes
    start: int
    after: int


@lru_cache(maxsize=4096)
def gradient_track(
    sizes: tuple[int, ...], *, stage: int, ranks: int, element: int, bucket: int, accumulates: bool
) -> GradientTrack:
    """Follow gradients of ``sizes`` bytes, in the order that backward makes them.

    ``bucket`` is reduce_bucket_size in elements; ``accumulates`` tells that there is more than
    one micro-step, and asks for the last one.
    """
    if stage == 0:
        return _whole(sizes, element, accumulates=accumulates, bucket_bytes=0, stage=0, ranks=ranks)
    if stage == 1:
        return _whole(
            sizes,
            element,
            accumulates=accumulates,
            bucket_bytes=bucket * element,
            stage=1,
            ranks=ranks,
        )
    if stage == 2:
        return _partitioned(sizes, ranks, bucket * element, accumulates=accumulates)
    return _scattered(sizes, ranks, bucket * element)


def partition_span(sizes: tuple[int, ...], ranks: int) -> tuple[int, int]:
    """Return (first, end) of the parameters that the rank with most of them touches.

    Ranks own equal slices of the flat parameters; a parameter that crosses a border is kept
    whole by both. ``sizes`` is in backward order, the flat order is its reverse.
    """
    ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
    total = int(ends[-1])
    borders = np.arange(1, ranks, dtype=np.int64) * total // ranks
    first = np.concatenate(([0], np.searchsorted(ends, borders, side="right")))
    end = np.concatenate((np.searchsorted(ends, borders, side="left") + 1, [len(sizes)]))
    starts = ends - np.asarray(sizes, dtype=np.int64)
    held = ends[end - 1] - starts[first]
    worst = int(np.argmax(held))
    return int(first[worst]), int(end[worst])


def _whole(
    sizes: tuple[int, ...],
    element: int,
    *,
    accumulates: bool,
    bucket_bytes: int,
    stage: int,
    ranks: int,
) -> GradientTrack:
    """Stages 0 and 1: every gradient stays whole until the last micro-step has ended."""
    array = np.asarray(sizes, dtype=np.int64)
    total = int(array.sum())
    if accumulates:
        before = np.full(len(sizes) + 1, total + bucket_bytes, dtype=np.int64)
    else:
        before = np.concatenate(([0], np.cumsum(array))) + bucket_bytes
        before[0] = 0
    after = total + (
        min(total, _UNSHARDED_BUCKET_ELEMENTS * element)
        if stage == 0
        else _reduction(sizes, ranks, bucket_bytes)
    )
    handing = np.maximum(before[:-1], bucket_bytes)  # the first one finds the bucket made
    start = total + bucket_bytes if accumulates else 0
    return GradientTrack(before, handing, start, after)


def _reduction(sizes: tuple[int, ...], ranks: int, bucket_bytes: int) -> int:
    """Return what stage 1 adds to the whole gradients while it reduces them bucket by bucket.

    Parameters are walked in the model's order: the reverse of backward's.
    """
    first, end = partition_span(sizes, ranks)
    partition = sum(sizes[first:end])
    filled = moved = 0
    peak = 0
    owned = allocated = oversized = False
    for index in range(len(sizes) - 1, -1, -1):
        size = sizes[index]
        if filled and (filled + size > bucket_bytes or oversized):
            allocated = allocated or owned
            flat = filled if ranks > 1 and not oversized else 0
            peak = max(peak, (partition if allocated else 0) - moved + flat)
            filled, owned, oversized = 0, False, False
        oversized = size > bucket_bytes
        filled += size
        owned = owned or first <= index < end
        moved += 0 if oversized else size
    peak = max(peak, partition - moved)
    return bucket_bytes + peak


def _partitioned(
    sizes: tuple[int, ...], ranks: int, bucket_bytes: int, *, accumulates: bool
) -> GradientTrack:
    """Stage 2: gradients go through the bucket into the partition of their owner."""
    first, end = partition_span(sizes, ranks)
    partition = sum(sizes[first:end])
    kept = partition if accumulates else 0  # of the earlier micro-steps
    before = [kept]
    handing: list[int] = []
    filled = oversized = 0
    owned = allocated = False
    for index, size in enumerate(sizes):
        held = kept + bucket_bytes + oversized + (partition if allocated else 0)
        if filled and filled + size > bucket_bytes:
            arriving = partition if owned and not allocated else 0
            flat = filled if ranks > 1 and not oversized else 0
            handing.append(held + max(arriving, flat))
            allocated = allocated or owned
            filled = oversized = 0
            owned = False
        else:
            handing.append(held)
        filled += size
        owned = owned or first <= index < end
        oversized = size if size > bucket_bytes else 0
        before.append(kept + bucket_bytes + oversized + (partition if allocated else 0))
    after = kept + bucket_bytes + oversized + partition
    return GradientTrack(np.asarray(before), np.asarray(handing), kept, after)


def _scattered(sizes: tuple[int, ...], ranks: int, bucket_bytes: int) -> GradientTrack:
    """Stage 3: the bucket and the partition are there from the start (see ``states``)."""
    before = [0]
    handing: list[int] = []
    filled = count = oversized = 0
    for size in sizes:
        if filled and filled + size > bucket_bytes:
            handing.append(oversized + _interleaved(filled, count, ranks))
            filled = count = oversized = 0
        else:
            handing.append(oversized)
        filled += size
        count += 1
        oversized = size if size > bucket_bytes else 0
        before.append(oversized)
    after = oversized + _interleaved(filled, count, ranks)
    return GradientTrack(np.asarray(before), np.asarray(handing), 0, after)


def _interleaved(size: int, count: int, ranks: int) -> int:
    """Return the copy that reduce_scatter_coalesced makes; one even tensor needs none."""
    return 0 if count == 1 and size % (4 * ranks) == 0 else size
