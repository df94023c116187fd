"""Strict arrival order: whoever is first waits, and everybody behind waits too."""

from dataclasses import dataclass

from frenzy_scheduler.core.decisions import QueuedJob, Rank
from frenzy_scheduler.core.policies.has import TURN, first_that_fits
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.placement import Placement


@dataclass(frozen=True, slots=True)
class Fifo:
    """The head of the line gets devices as under ``has``; nothing overtakes it."""

    name: str = "fifo"
    strict: bool = True

    @property
    def rank(self) -> Rank:
        """Return the turn."""
        return TURN

    def place(self, job: QueuedJob, snapshot: Snapshot) -> Placement | None:
        """Choose devices as ``has`` does."""
        return first_that_fits(job, snapshot)
