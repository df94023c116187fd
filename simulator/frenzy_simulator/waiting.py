"""The simulated queue, and how a strategy decides about it: event by event where that is exact."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from frenzy_scheduler.core.admission import Holding, Ledger
from frenzy_scheduler.core.between import Between
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
    View,
)
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.core.standing import Standing
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.project import Project
from frenzy_simulator.live import LiveJob

Change = Place | Preempt | Resize
Look = Callable[[Sequence[QueuedJob], Sequence[RunningJob], Snapshot, int], None]  # before a cycle


class Waiting:
    """The jobs that wait. Policies that place one job after the other see only what changed.

    ``frenzy`` compares everybody once a minute, and in between those who want devices most. All
    others, and all where quotas are, get the whole queue in a ``cycle``. ``look`` is shown what
    every decision is about to be made from; then it is made from everything.
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
        self._between: Between | None = None
        if isinstance(strategy, Frenzy) and not projects and look is None:
            self._between = Between(strategy)

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
        if self._between is not None:
            self._between.enter(live.job.id)

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
        if self._between is not None:
            self._between.rebuilt()

    def decide(
        self, placed: Mapping[JobId, LiveJob], snapshot: Snapshot, now_ms: int
    ) -> tuple[list[Change], int]:
        """Return what is to change, and the CPU nanoseconds that it took to find out.

        Who gets devices still has to ``leave``.
        """
        if self._between is not None:
            return self._decide_between(self._between, placed, snapshot, now_ms)
        wanted = self._look is not None or self._standing is None
        queue = [live.as_queued() for live in self._jobs.values()] if wanted else []
        needed = self._look is not None or isinstance(self._strategy, Allocator)
        running = [live.as_running(now_ms) for live in placed.values()] if needed else []
        if self._look is not None:
            self._look(queue, running, snapshot, now_ms)
        started = time.thread_time_ns()
        if self._standing is not None:
            changes: list[Change] = [*self._standing.decide(snapshot, now_ms)]
        else:
            ledger = Ledger(self._projects, self._holdings(placed.values()))
            decided = cycle(queue, snapshot, now_ms, self._strategy, running, ledger=ledger)
            changes = [one for one in decided if not isinstance(one, Hold)]
        return changes, time.thread_time_ns() - started

    def _decide_between(
        self, between: Between, placed: Mapping[JobId, LiveJob], snapshot: Snapshot, now_ms: int
    ) -> tuple[list[Change], int]:
        """Decide among everybody when that is due, else among those who want devices most."""
        due = between.due(len(self._jobs) + len(placed), now_ms)
        names: tuple[Iterable[JobId], Iterable[JobId]] = (self._jobs, placed)
        started = time.thread_time_ns()
        if not due:
            names = between.taking_part(self._jobs, placed)
        spent_ns = time.thread_time_ns() - started
        queue = [self._jobs[name].as_queued() for name in names[0]]
        held = [placed[name].as_running(now_ms) for name in names[1]]
        started = time.thread_time_ns()
        policy = self._strategy if due else between.policy
        decided = cycle(queue, snapshot, now_ms, policy, held)
        if due:
            between.compared(View(queue=queue, running=held, snapshot=snapshot, now_ms=now_ms))
        changes = [one for one in decided if not isinstance(one, Hold)]
        return changes, spent_ns + time.thread_time_ns() - started

    def _holdings(self, placed: Iterable[LiveJob]) -> Iterator[Holding]:
        for live in placed if self._projects else ():
            if live.plan is not None:
                yield Holding(live.job.project, live.plan.kind, live.plan.device_count)
