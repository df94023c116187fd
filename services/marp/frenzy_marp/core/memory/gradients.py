"""Where parameter gradients live during backward, by ZeRO stage (DeepSpeed 0.19.8).

Sources: runtime/zero/stage_1_and_2.py (setup_buckets, reduce_independent_p_g_buckets_and_
remove_grads, copy_grads_in_partition, reduce_gradients), runtime/zero/stage3.py
(__add_grad_to_ipg_bucket, __reduce_and_partition_ipg_grads), runtime/engine.py
(buffered_allreduce_fallback).
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from frenzy_marp.core.memory.states import partition_elements

Bytes = npt.NDArray[np.int64]

_FP64: Final = 8
_MEASURED_AT_ONCE: Final = 250_000_000  # buffer_size of _constant_buffered_norm2, stage3.py
_UNSHARDED_BUCKET_ELEMENTS: Final = 500_000_000  # MEMORY_OPT_ALLREDUCE_SIZE, engine.py


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Bytes of gradients while backward hands them over; the same object for the same walk.

    ``before[k]``: while ``k`` gradients have been handed over. ``handing[k]``: at the moment
    when gradient ``k`` is (itself not included). ``start``: at the micro-step's forward.
    """

    before: Bytes
    handing: Bytes
    start: int


@dataclass(frozen=True, slots=True)
class GradientTrack:
    """Bytes of gradients during the micro-step that holds most.

    ``after``: highest while gradients are reduced after backward, activations gone.
    """

    walk: Walk
    after: int


@dataclass(frozen=True)
class Gradients:
    """Parameter gradients of a model: ``sizes`` bytes each, in the order that backward makes them.

    ``bucket_bytes`` is reduce_bucket_size. What does not depend on ranks is worked out once.
    """

    sizes: Bytes
    element: int
    bucket_bytes: int
    _walks: dict[tuple[int, ...] | bytes, Walk] = field(
        default_factory=dict[tuple[int, ...] | bytes, Walk]
    )

    def track(
        self, stage: int, ranks: int, *, accumulates: bool, offloaded: bool = False
    ) -> GradientTrack:
        """Follow the gradients of one rank through a micro-step.

        ``accumulates`` tells that there is more than one micro-step, and asks for the last one.
        ``offloaded``: the host has the gradients that the optimizer works with.
        """
        if stage == 0:
            walk = self._whole(0, accumulates=accumulates)
            return GradientTrack(walk, self.total + self._largest_message)
        if stage == 3:
            return self._scattered(ranks, offloaded=offloaded)
        if offloaded:
            leave = self._leaving_whole if stage == 1 else self._leaving_in_parts
            return leave(ranks, accumulates=accumulates)
        if stage == 1:
            walk = self._whole(self.bucket_bytes, accumulates=accumulates)
            return GradientTrack(walk, self.total + self._reduction(ranks))
        return self._partitioned(ranks, accumulates=accumulates)

    def spans(self, ranks: int) -> tuple[Bytes, Bytes]:
        """Return (first, end) of the parameters that each rank touches.

        Ranks own equal slices of the flat parameters, whose order is the reverse of backward's;
        a parameter that crosses a border is kept whole by both.
        """
        borders = np.arange(1, ranks, dtype=np.int64) * self.total // ranks
        first = np.concatenate(([0], np.searchsorted(self._ends, borders, side="right")))
        end = np.concatenate(
            (np.searchsorted(self._ends, borders, side="left") + 1, [len(self.sizes)])
        )
        return first, end

    @cached_property
    def total(self) -> int:
        """Return the bytes of all gradients."""
        return int(self._ends[-1])

    @cached_property
    def _ends(self) -> Bytes:
        return np.cumsum(self.sizes)

    @cached_property
    def _largest_message(self) -> int:
        """Return the bytes of the largest flat copy that stage 0 reduces.

        Gradients are gathered until they exceed the limit (allreduce_no_retain, engine.py); a
        single one is not copied.
        """
        limit = _UNSHARDED_BUCKET_ELEMENTS * self.element
        largest = message = count = 0
        for size in reversed(self.sizes.tolist()):
            message += size
            count += 1
            if message > limit:
                largest = max(largest, message if count > 1 else 0)
                message = count = 0
        return max(largest, message if count > 1 else 0)

    @cached_property
    def _buckets(self) -> "_Buckets":
        return _fill(self.sizes, self.bucket_bytes)

    @cached_property
    def _buckets_of_the_model(self) -> "_Buckets":
        return _fill(self.sizes[::-1], self.bucket_bytes)

    def _whole(self, bucket: int, *, accumulates: bool) -> Walk:
        """Stages 0 and 1: every gradient stays whole until the last micro-step has ended."""
        key = (bucket, accumulates)
        if key not in self._walks:
            if accumulates:
                before = np.full(len(self.sizes) + 1, self.total + bucket, dtype=np.int64)
            else:
                before = np.concatenate(([0], self._ends + bucket))
            handing = np.maximum(before[:-1], bucket)  # the first one finds the bucket made
            start = self.total + bucket if accumulates else 0
            self._walks[key] = Walk(before, handing, start)
        return self._walks[key]

    def _partitions(self, ranks: int) -> tuple[Bytes, Bytes, Bytes]:
        """Return first, end and bytes of what each rank keeps whole."""
        first, end = self.spans(ranks)
        return first, end, self._ends[end - 1] - (self._ends - self.sizes)[first]

    def _reduction(self, ranks: int) -> int:
        """Return what stage 1 adds to the whole gradients while it reduces them by the bucket.

        It walks the parameters in the model's order. A rank makes its partition at the first
        bucket with something of its own; until then what was reduced has left.
        """
        _, end, partitions = self._partitions(ranks)
        buckets = self._buckets_of_the_model
        moved = np.cumsum(np.where(buckets.oversized, 0, buckets.filled))
        made = np.zeros(len(moved), dtype=np.int64)
        np.maximum.at(made, buckets.of[len(self.sizes) - end], partitions)
        copies = self._copies(buckets, (self.total - self._ends)[::-1], ranks)
        made = np.maximum.accumulate(made)
        before = np.concatenate(([0], made[:-1]))
        # The copy is gone when the partition is made.
        held = np.maximum(before + copies, made) - moved
        return self.bucket_bytes + max(0, int(held.max()))

    def _partitioned(self, ranks: int, *, accumulates: bool) -> GradientTrack:
        """Stage 2: gradients go through the bucket into the partition of their owner.

        The highest of all ranks at every point: one with a smaller partition may make it while
        more activations are there.
        """
        first, _, partitions = self._partitions(ranks)
        largest = int(partitions.max())
        buckets = self._buckets
        # [b]: the largest partition that is made before bucket b, when it has been reduced
        made = np.zeros(len(buckets.filled) + 1, dtype=np.int64)
        np.maximum.at(made, buckets.of[first] + 1, partitions)
        made = np.maximum.accumulate(made)
        # What earlier micro-steps left is there all the time: as much again.
        kept = largest if accumulates else 0
        own = np.maximum(2 * made, kept) if accumulates else made
        before = np.concatenate(([kept], self.bucket_bytes + buckets.over + own[buckets.of]))
        handing = np.concatenate(([kept + self.bucket_bytes], before[1:-1]))
        flushes = buckets.flushes
        leaving = buckets.of[flushes] - 1
        copies = self._copies(buckets, self.total - self._ends, ranks)
        handing[flushes] += np.maximum(own[leaving + 1] - own[leaving], copies[leaving])
        last = max(int(own[-1]), int(own[-2] + copies[-1]))
        after = self.bucket_bytes + int(buckets.over[-1]) + last
        return GradientTrack(Walk(before, handing, kept), after)

    def _leaving_whole(self, ranks: int, *, accumulates: bool) -> GradientTrack:
        """Stage 1, offloaded: whole until the last micro-step has ended, then off to the host."""
        walk = self._whole(self.bucket_bytes, accumulates=accumulates)
        buckets = self._buckets_of_the_model
        copies = self._copies(buckets, (self.total - self._ends)[::-1], ranks)
        made = np.maximum(copies, self._norms(buckets, self._slices(ranks)[::-1]))
        moved = np.cumsum(np.where(buckets.oversized, 0, buckets.filled))
        return GradientTrack(walk, self.total + self.bucket_bytes + int((made - moved).max()))

    def _leaving_in_parts(self, ranks: int, *, accumulates: bool) -> GradientTrack:
        """Stage 2, offloaded: the highest of a step's micro-steps at every point.

        In the last one gradients leave for the host bucket by bucket. In earlier ones a copy
        leaves: a rank keeps those of its partition until backward has ended, and those that lie
        in the bucket cost nothing (async_accumulate_grad_in_cpu_via_gpu, stage_1_and_2.py).
        """
        buckets = self._buckets
        copies = self._copies(buckets, self.total - self._ends, ranks)
        made = np.maximum(copies, self._norms(buckets, self._slices(ranks)))
        before = np.concatenate(([0], self.bucket_bytes + buckets.over))
        handing = np.concatenate(([self.bucket_bytes], before[1:-1]))
        flushes = buckets.flushes
        handing[flushes] += made[buckets.of[flushes] - 1]
        after = self.bucket_bytes + int(buckets.over[-1] + made[-1])
        if accumulates:
            kept = self.bucket_bytes + self._kept(ranks)
            before[1:] = np.maximum(before[1:], kept)
            handing[1:] = np.maximum(handing[1:], kept[:-1])
            after = max(after, int(kept[-1]))
        return GradientTrack(Walk(before, handing, 0), after)

    def _norms(self, buckets: "_Buckets", slices: Bytes) -> Bytes:
        """Return the bytes of the largest fp64 copy that each bucket's gradients are measured in.

        ``slices`` are elements (set_norm_for_param_grad_in_gpu, stage_1_and_2.py;
        _constant_buffered_norm2, stage3.py, which takes so many at a time).
        """
        first = np.concatenate(([0], buckets.flushes))
        measured = np.minimum(slices, _MEASURED_AT_ONCE) * _FP64
        largest: Bytes = np.maximum.reduceat(measured, first)
        return largest

    def _slices(self, ranks: int) -> Bytes:
        """Return the elements of the largest part of each gradient that one rank owns."""
        elements = self.sizes // self.element
        own = partition_elements(self.total // self.element, ranks)
        end = (self.total - self._ends + self.sizes) // self.element
        start = end - elements
        first = np.minimum(elements, own - start % own)
        last = np.minimum(elements, (end - 1) % own + 1)
        whole = np.where(end // own > -(-start // own), own, 0)
        largest: Bytes = np.maximum(np.maximum(first, last), whole)
        return largest

    def _kept(self, ranks: int) -> Bytes:
        """Return the most bytes that any rank keeps of gradients larger than the bucket.

        ``[k]``: when gradient ``k`` has been handed over, of an earlier micro-step.
        """
        first, end = self.spans(ranks)
        ends = np.cumsum(self._buckets.over)
        before = (ends - self._buckets.over)[first]
        done = np.zeros(len(self.sizes), dtype=np.int64)
        np.maximum.at(done, end - 1, ends[end - 1] - before)
        rank = np.searchsorted(first, np.arange(len(self.sizes)), side="right") - 1
        return np.maximum(np.maximum.accumulate(done), ends - before[rank])

    def _copies(self, buckets: "_Buckets", starts: Bytes, ranks: int) -> Bytes:
        """Return the bytes of the flat copy that reducing each bucket makes.

        What belongs to one rank is reduced in place (allreduce_and_scatter, stage_1_and_2.py).
        ``starts`` are where the gradients lie in the flat parameters, in the buckets' order.
        """
        if ranks == 1:
            return np.zeros_like(buckets.filled)
        own = partition_elements(self.total // self.element, ranks) * self.element
        first = np.concatenate(([0], buckets.flushes))
        low = np.minimum(starts[first], starts[first + buckets.counts - 1])
        high = low + buckets.filled
        shared = low // own != (high - 1) // own
        copies = np.where(shared, buckets.filled, 0)
        for bucket in np.flatnonzero(shared & buckets.oversized).tolist():
            span = int(low[bucket]), int(high[bucket])
            copies[bucket] = _largest_group(*span, own, self.bucket_bytes)
        return copies

    def _scattered(self, ranks: int, *, offloaded: bool) -> GradientTrack:
        """Stage 3: the bucket and the partition are there from the start (see ``states``).

        Where the partition is ``offloaded``, the part of one gradient is brought back to be
        measured and added to.
        """
        buckets = self._buckets
        # reduce_scatter_coalesced copies what it interleaves; one even tensor needs no copy.
        single = (buckets.counts == 1) & (buckets.filled % (4 * ranks) == 0)
        copies = np.where(single, 0, buckets.filled)
        if offloaded:
            slices = -(-(self.sizes // self.element) // ranks)
            first = np.concatenate(([0], buckets.flushes))
            brought = np.maximum.reduceat(slices, first) * self.element
            copies = copies + brought + self._norms(buckets, slices)
        key = copies.tobytes()  # most often the same whatever the number of ranks
        if key not in self._walks:
            before = np.concatenate(([0], buckets.over))
            handing = before[:-1].copy()
            flushes = buckets.flushes
            handing[flushes] += copies[buckets.of[flushes] - 1]
            self._walks[key] = Walk(before, handing, 0)
        return GradientTrack(self._walks[key], int(buckets.over[-1] + copies[-1]))


@dataclass(frozen=True)
class _Buckets:
    """How gradients share buckets: ``of`` each gradient, the bytes and number of each bucket.

    ``flushes`` are the gradients that find the bucket full. ``over`` is a gradient's own size
    where it is larger than the bucket, and 0 elsewhere.
    """

    of: Bytes
    filled: Bytes
    counts: Bytes
    flushes: Bytes
    over: Bytes
    oversized: npt.NDArray[np.bool_]


def _largest_group(start: int, end: int, own: int, bucket: int) -> int:
    """Return the most bytes of slices, one a rank, that are copied into one message.

    Slices are gathered until they exceed the bucket; a single one is not copied. All groups after
    the first begin at a border, so the second is as large as any later one.
    """
    largest = group = slices = messages = 0
    while start < end and messages < 2:
        border = min((start // own + 1) * own, end)
        group += border - start
        slices += 1
        start = border
        if group > bucket or start == end:
            largest = max(largest, group if slices > 1 else 0)
            group = slices = 0
            messages += 1
    return largest


def _fill(sizes: Bytes, bucket_bytes: int) -> _Buckets:
    flushes: list[int] = []
    filled = 0
    for index, size in enumerate(sizes.tolist()):
        if filled and filled + size > bucket_bytes:
            flushes.append(index)
            filled = 0
        filled += size
    starts = np.array([0, *flushes], dtype=np.int64)
    counts = np.diff(starts, append=len(sizes))
    sums = np.add.reduceat(sizes, starts)
    return _Buckets(
        of=np.repeat(np.arange(len(starts)), counts),
        filled=sums,
        counts=counts,
        flushes=starts[1:],
        over=np.where(sizes > bucket_bytes, sizes, 0),
        oversized=sums > bucket_bytes,
    )
