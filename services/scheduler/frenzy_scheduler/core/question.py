"""One question to ``cycle``, whole: what the service asks, and every edit of it.

``explain`` edits it to say what would start a job, forecasts begin with it, recordings keep it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from frenzy_scheduler.core.admission import Holding, Ledger
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import (
    Decision,
    Place,
    QueuedJob,
    RunningJob,
    Strategy,
)
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.cluster import ClusterSnapshot
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.project import Project


@dataclass(frozen=True, kw_only=True)
class Question:
    """A cycle's input as data."""

    queue: Sequence[QueuedJob]
    running: Sequence[RunningJob]
    cluster: ClusterSnapshot
    now_ms: int
    policy: Strategy
    projects: tuple[Project, ...] = ()
    holdings: tuple[Holding, ...] = ()

    @cached_property
    def snapshot(self) -> Snapshot:
        """Index the cluster."""
        return Snapshot.of(self.cluster)

    @cached_property
    def ledger(self) -> Ledger:
        """Book what is held."""
        return Ledger(self.projects, self.holdings)

    def answer(self) -> list[Decision]:
        """Run the cycle."""
        return cycle(
            self.queue, self.snapshot, self.now_ms, self.policy, self.running, ledger=self.ledger
        )

    def placement_of(self, job: JobId) -> Place | None:
        """Run the cycle and return what a waiting job gets, None when it goes on waiting."""
        found = (one for one in self.answer() if isinstance(one, Place) and one.job == job)
        return next(found, None)
