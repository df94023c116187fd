"""Decide about an event among few jobs: those that devices were worth most to a moment ago.

``Frenzy`` compares everybody with everybody, and of thousands of jobs that takes a tenth of a
second. Between two such comparisons ``Between`` compares only the ``most`` eager waiting jobs of
the last one, the ``most`` eager running ones, and whoever has come since. Nobody loses devices
meanwhile: what is idle is handed out, by the same rules. With few jobs everybody is compared.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice

from frenzy_scheduler.core.decisions import View
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_shared.domain.ids import JobId


class Between:
    """Who takes part in the next decision.

    The owner reports who ``enter``s the queue, and after every full comparison ``compared`` what.
    """

    def __init__(self, policy: Frenzy, *, most: int = 64, every_ms: int = 60_000) -> None:
        """Compare everybody once in ``every_ms``."""
        self.policy = replace(policy, min_run_factor=math.inf)  # nobody's devices are contested
        self._full, self._most, self._every_ms = policy, most, every_ms
        self._eager: tuple[list[JobId], list[JobId]] = ([], [])
        self._new: list[JobId] = []
        self._next_ms = 0

    def enter(self, job: JobId) -> None:
        """Note a job that has come, or come back, since everybody was compared."""
        self._new.append(job)

    def rebuilt(self) -> None:
        """Note that nodes have changed: everybody is to be compared."""
        self._next_ms = 0

    def due(self, jobs: int, now_ms: int) -> bool:
        """Tell whether everybody is to be compared now; ``jobs`` are all that wait or run."""
        return jobs <= 2 * self._most or now_ms >= self._next_ms

    def compared(self, view: View) -> None:
        """Remember who is how eager; ``view`` is what everybody was compared in."""
        self._next_ms = view.now_ms + self._every_ms
        self._new.clear()
        few = len(view.queue) + len(view.running) <= 2 * self._most
        self._eager = ([], []) if few else self._full.eager(view)

    def taking_part(
        self, waiting: Collection[JobId], placed: Collection[JobId]
    ) -> tuple[list[JobId], list[JobId]]:
        """Return which of the waiting and of the placed jobs to decide among."""
        first, second = self._eager
        fresh = dict.fromkeys(job for job in self._new if job in waiting)
        there = (job for job in first if job in waiting and job not in fresh)
        return [*fresh, *islice(there, self._most)], list(self._still(second, placed))

    def _still(self, eager: list[JobId], placed: Collection[JobId]) -> Iterator[JobId]:
        return islice((job for job in eager if job in placed), self._most)
