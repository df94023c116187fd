"""The simulated queue, and how a strategy decides about it: event by event where that is exact."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from frenzy_scheduler.core.admission import Holding, Ledger
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import (
    Allocator,
    Hold,
    Place,
    Preempt,
    QueuedJob,
    Resize,
    RunningJob,
    Strategy,
)
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.core.standing import Standing
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.project import Project
from frenzy_simulator.live import LiveJob

Change = Place | Preempt | Resize
Look = Callable[[Sequence[QueuedJob], Sequence[RunningJob], Snapshot, int], None]  # before a cycle


class Waiting:
    """The jobs that wait. Policies that place one job after the other see only what changed.

    All others, and all where quotas are, get the whole queue in a ``cycle``. ``look`` is shown
    what every decision is about to be made from.
    """

    def __init__(
        self, strategy: Strategy, look: Look | None = None, projects: Sequence[Project] = ()
    ) -> None:
        """Start with nobody."""
        self._strategy, self._look, self._projects = strategy, look, projects
        self._jobs: dict[JobId, LiveJob] = {}
        self._standing: Standing | None = None
        if not isinstance(strategy, Allocator) and not projects:
            self._standing = Standing(strategy)

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._jobs)

    @property
    def jobs(self) -> Collection[JobId]:
        """Return who waits."""
        return self._jobs.keys()

    def enter(self, live: LiveJob) -> None:
        """Put a job in line."""
        self._jobs[live.job.id] = live
        if self._standing is not None:
            self._standing.add(live.as_queued())

    def leave(self, job: JobId) -> LiveJob:
        """Take a job out of the line."""
        if self._standing is not None:
            self._standing.remove(job)
        return self._jobs.pop(job)

    def freed(self, kind: str) -> None:
        """Note that devices of a kind have become idle."""
        if self._standing is not None:
            self._standing.freed(kind)

    def rebuilt(self) -> None:
        """Note that a node went or came back."""
        if self._standing is not None:
            self._standing.rebuilt()

    def decide(
        self, placed: Collection[LiveJob], snapshot: Snapshot, now_ms: int
    ) -> tuple[list[Change], int]:
        """Return what is to change, and the CPU nanoseconds that it took to find out.

        Who gets devices still has to ``leave``.
        """
        wanted = self._look is not None or self._standing is None
        queue = [live.as_queued() for live in self._jobs.values()] if wanted else []
        needed = self._look is not None or isinstance(self._strategy, Allocator)
        running = [live.as_running(now_ms) for live in placed] if needed else []
        if self._look is not None:
            self._look(queue, running, snapshot, now_ms)
        started = time.thread_time_ns()
        if self._standing is not None:
            changes: list[Change] = [*self._standing.decide(snapshot, now_ms)]
        else:
            ledger = Ledger(self._projects, self._holdings(placed))
            decided = cycle(queue, snapshot, now_ms, self._strategy, running, ledger=ledger)
            changes = [one for one in decided if not isinstance(one, Hold)]
        return changes, time.thread_time_ns() - started

    def _holdings(self, placed: Iterable[LiveJob]) -> Iterator[Holding]:
        for live in placed if self._projects else ():
            if live.plan is not None:
                yield Holding(live.job.project, live.plan.kind, live.plan.device_count)
