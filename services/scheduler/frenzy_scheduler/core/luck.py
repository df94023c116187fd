"""What nobody can know in advance, drawn so that few draws cover it well: repeatable by seed.

Quantities of one job are quasi-random over futures (golden-ratio steps from a start that the
job's name decides), so that even four futures hold fast and slow runs of every job.
"""

import math
import random
import zlib
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, TypeVar

T = TypeVar("T")

_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_NORMAL: Final = NormalDist()
_EDGE: Final = 1e-6


class Luck:
    """The luck of future ``number``.

    ``sigma`` is that of the logarithm of a real step time over the predicted one, independent for
    each (job, plan); ``early_end_share`` the share of jobs that end somewhere in their work.
    """

    def __init__(self, seed: int, number: int, *, sigma: float, early_end_share: float) -> None:
        self._seed, self._number = seed, number
        self._sigma, self._early = sigma, early_end_share
        self._draw = random.Random(f"{seed}/{number}")  # noqa: S311 - not a secret

    def error(self, job: str, plan: str) -> float:
        """Return a job's real step time with a plan over the predicted one."""
        return math.exp(self._sigma * _NORMAL.inv_cdf(self._uniform(f"{job}/{plan}")))

    def over_at(self, job: str, done: float = 0.0) -> float:
        """Return the share of what is left of a job that it never does; mostly none.

        ``done`` is the share of its work that it has done without ending early.
        """
        early = self._early * (1 - done) / (1 - self._early * done)
        chance = self._uniform(job)
        return chance / early if chance < early else 0.0

    def interval_s(self, per_s: float) -> float:
        """Return the time to the next submission."""
        return self._draw.expovariate(per_s)

    def choose(self, among: Sequence[T]) -> T:
        """Return one of several, all alike probable."""
        return self._draw.choice(among)

    def _uniform(self, about: str) -> float:
        start = zlib.crc32(f"{self._seed}/{about}".encode()) / 2**32
        share = (start + self._number * _GOLDEN) % 1.0
        return min(max(share, _EDGE), 1 - _EDGE)
