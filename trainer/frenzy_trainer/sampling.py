"""Which samples an optimizer step trains on: the same set whatever the plan.

Epoch ``e`` visits the samples in a permutation keyed by (seed, e). The permutation is a Feistel
network over the sample numbers, walked until the result is in range: it needs no memory, no
state to save, and gives the same order on every machine and library version.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_ROUNDS: Final = 4


@dataclass(frozen=True)
class SampleOrder:
    """The order of ``count`` samples under ``seed``, epoch after epoch without end."""

    seed: int
    count: int

    def sample(self, position: int) -> int:
        """Return the sample at ``position`` of the run (position 0 is its very first)."""
        epoch, index = divmod(position, self.count)
        index = self._permute(index, epoch)
        while index >= self.count:
            index = self._permute(index, epoch)
        return index

    @cached_property
    def _half_bits(self) -> int:
        return max(1, -(-(self.count - 1).bit_length() // 2))

    def _permute(self, index: int, epoch: int) -> int:
        bits = self._half_bits
        mask = (1 << bits) - 1
        left, right = index >> bits, index & mask
        for turn in range(_ROUNDS):
            key = f"{self.seed}:{epoch}:{turn}:{right}".encode()
            digest = hashlib.blake2b(key, digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "big") & mask)
        return left << bits | right


def micro_batch_positions(
    *,
    step: int,
    micro_step: int,
    rank: int,
    data_parallel: int,
    micro_batch: int,
    accumulation: int,
) -> range:
    """Return the positions of one micro-batch of one data-parallel rank.

    The positions of all ranks and micro-steps of ``step`` together are the global batch
    ``[step * B, (step + 1) * B)`` with ``B = micro_batch * accumulation * data_parallel``.
    """
    first = (step * accumulation + micro_step) * data_parallel + rank
    return range(first * micro_batch, (first + 1) * micro_batch)
