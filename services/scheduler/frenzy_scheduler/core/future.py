"""One possible future of a queue: a discrete-event run with the scheduler's own ``cycle`` inside.

Lighter than the simulator: events that are close together, compared with how far away they are,
share a cycle. How fast jobs really train, which end early and who arrives is ``Luck``.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from frenzy_scheduler.core.admission import Ledger
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
from frenzy_scheduler.core.luck import Luck
from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_scheduler.core.voyage import Voyage
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.placement import Placement

_LOOK_S: Final = 300.0  # between looks of a preemptive policy when nothing happens
_LOOK_SHARE: Final = 0.1  # of the distance from now, where that is longer
_LEAST_WINDOW_S: Final = 1.0
_PER_CYCLE: Final = 10  # work of a cycle beside its jobs
_PER_BID: Final = 6  # work of a job whose plans are all weighed, as allocators do
_FOR_THE_REST: Final = 0.3  # share of the budget that is kept for what is beyond the cut-off
_MOST_GIVEN_AWAY: Final = 0.9  # share of the cluster that arrivals are taken to use, at most
_BULK_S: Final = 1200.0  # under a preemptive policy, after so long two jobs arrive at once, ...
_MOST_AT_ONCE: Final = 16.0
_NO_JOB: Final = JobId("")


class _Kind(IntEnum):
    END = 0
    ARRIVE = 1
    LOOK = 2  # a back-off is over, or a preemptive policy looks without an event


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What will be submitted: ``per_s`` jobs a second on average, each like one of ``jobs``."""

    per_s: float = 0.0
    jobs: tuple[QueuedJob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Events count as one within a share of their distance from now, at most ``most_s``."""

    share: float
    most_s: float

    def until_s(self, first_s: float) -> float:
        """Return when the window ends that an event opens."""
        return first_s + min(max(first_s * self.share, _LEAST_WINDOW_S), self.most_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Where every future begins: a cycle's input, who will arrive, and what a start takes."""

    queue: Sequence[QueuedJob]
    running: Sequence[RunningJob]
    snapshot: Snapshot
    now_ms: int
    policy: Strategy
    ledger: Ledger | None = None
    arrivals: Arrivals = Arrivals()
    start_s: float = 0.0  # from a placement to the first step

    @property
    def preemptive(self) -> bool:
        """Tell whether a job that runs may be stopped."""
        return isinstance(self.policy, Allocator) and self.policy.preemptive

    def can_start(self, job: QueuedJob) -> bool:
        """Tell whether a job could start on the nodes that are there, once they are idle.

        Nobody knows when another job's end, or a node that is away, lets it.
        """
        if job.blocked is not None:
            return False
        there = self.snapshot.within(job.nodes)
        return any(there.most_for(plan) >= plan.device_count for plan in job.plans)


@dataclass(slots=True)
class Budget:
    """How much may be computed, counted in jobs that cycles look at: a clock would not repeat."""

    left: int

    def spend(self, jobs: int, reserve: int) -> bool:
        """Take one cycle's work; False, and nothing is taken, when less than that is left."""
        work = jobs + _PER_CYCLE
        if self.left - work < reserve:
            return False
        self.left -= work
        return True


class Future:
    """Runs one future. ``starts`` and ``ends`` are seconds from now, of the present's jobs.

    Where the budget does not reach, ``cut_off_s`` says how far it came. Beyond it nobody arrives,
    and everything takes longer instead by what arrivals took before. If even that is too much, or
    later than ``horizon_s``, jobs that train are taken to go on, and others are missing.
    """

    def __init__(
        self, present: Present, luck: Luck, budget: Budget, *, window: Window, horizon_s: float
    ) -> None:
        self.starts: dict[JobId, float] = {}
        self.ends: dict[JobId, float] = {}
        self.cut_off_s: float | None = None
        self._present, self._luck, self._budget = present, luck, budget
        self._window, self._horizon_s = window, horizon_s
        self._preemptive = present.preemptive
        self._sees_running = isinstance(present.policy, Allocator)
        self._snapshot = present.snapshot.copy()
        self._ledger = Ledger() if present.ledger is None else present.ledger.copy()
        self._agenda: list[tuple[float, int, int, JobId, int]] = []
        self._now_s = self._look_s = 0.0
        self._events = self._arrived = 0
        self._devices = sum(self._snapshot.total(kind) for kind in self._snapshot.kinds)
        self._given_away_s = 0.0  # device-seconds that arrivals have had
        self._stretch = 1.0  # of the time beyond the cut-off
        self._running: dict[JobId, Voyage] = {}
        self._waiting: dict[JobId, Voyage] = {}
        self._open: set[JobId] = set()  # jobs whose end is not known yet
        everybody: list[QueuedJob | RunningJob] = [*present.queue, *present.running]
        self._sequence = max((job.sequence for job in everybody), default=0)

    def run(self) -> None:
        """Go on until the ends of all jobs of the present are known."""
        self._begin()
        self._advance(reserve=round(self._budget.left * _FOR_THE_REST))
        if self._open and self._budget.left > 0:
            self._cut_off()
            self._advance(reserve=0)
        for job in self._open & self._running.keys():
            self.ends[job] = self._told(self._running[job].ends_s)

    def _advance(self, *, reserve: int) -> None:
        """Let things happen until all ends are known, or the budget is down to ``reserve``."""
        happened = True
        while self._open:
            if happened:
                if not self._budget.spend(self._looked_at, reserve):
                    return
                self._decide()
            if not self._agenda or self._agenda[0][0] > self._horizon_s:
                return
            happened = self._happen()

    @property
    def _looked_at(self) -> int:
        waiting, running = len(self._waiting), len(self._running)
        return (waiting + running) * _PER_BID if self._sees_running else waiting

    def _begin(self) -> None:
        present = self._present
        for running in present.running:
            voyage = Voyage(running, self._luck, present.now_ms)
            if voyage.resume(present.start_s):  # else nobody knows when it gives its devices back
                self._keep(voyage)
                if self._preemptive:
                    self._open.add(running.id)
        for queued in present.queue:
            self._waiting[queued.id] = Voyage(queued, self._luck, present.now_ms)
            if present.can_start(queued):
                self._open.add(queued.id)
            if queued.not_before_ms > present.now_ms:
                self._add((queued.not_before_ms - present.now_ms) / 1000, _Kind.LOOK)
        self._plan_arrival(0.0)

    def _cut_off(self) -> None:
        """Forget those who would arrive, and make up for it."""
        self.cut_off_s = self._now_s
        strangers = [one for one in self._running.values() if one.bulk]
        given_away_s = self._given_away_s + sum(one.held_device_s(self._now_s) for one in strangers)
        share = given_away_s / max(self._devices * self._now_s, 1.0)
        self._stretch = 1 / (1 - min(share, _MOST_GIVEN_AWAY))
        self._waiting = {job: one for job, one in self._waiting.items() if not one.bulk}

    def _told(self, at_s: float) -> float:
        """Return a moment as it is told: beyond the cut-off time goes slower."""
        cut_off_s = at_s if self.cut_off_s is None else self.cut_off_s
        return at_s + max(at_s - cut_off_s, 0.0) * (self._stretch - 1)

    def _happen(self) -> bool:
        """Let the next event happen and what is close to it; tell whether to decide."""
        until_s = self._window.until_s(self._agenda[0][0])
        times: list[float] = []
        while self._agenda and self._agenda[0][0] <= until_s:
            at_s, kind, _, job, generation = heapq.heappop(self._agenda)
            if self._handle(_Kind(kind), at_s, job, generation):
                times.append(at_s)
        if times:  # their mean: early and late ones make up for each other
            self._now_s = max(self._now_s, sum(times) / len(times))
        return bool(times)

    def _handle(self, kind: _Kind, at_s: float, job: JobId, generation: int) -> bool:
        """Let one event happen; False when it is void."""
        if kind is _Kind.ARRIVE:
            if self.cut_off_s is not None:
                return False
            self._arrive(at_s)
        elif kind is _Kind.END:
            voyage = self._running.get(job)
            if voyage is None or voyage.generation != generation:
                return False
            self._give_back(voyage)
            self._open.discard(job)
            self.ends.setdefault(job, self._told(at_s))
        elif self._preemptive:
            return at_s >= self._look_s  # else something was decided since it was planned
        return True

    def _arrive(self, at_s: float) -> None:
        present = self._present
        self._arrived += 1
        like = self._luck.choose(present.arrivals.jobs)
        arrived_ms = present.now_ms + round(at_s * 1000)
        new = replace(
            like,
            id=JobId(f"arrival {self._arrived}"),
            sequence=self._sequence + self._arrived,
            progress=replace(like.progress, arrived_ms=arrived_ms),
        )
        bulk = self._bulk(at_s)
        self._waiting[new.id] = Voyage(new, self._luck, present.now_ms, bulk=bulk)
        self._plan_arrival(at_s)

    def _plan_arrival(self, after_s: float) -> None:
        arrivals = self._present.arrivals
        if arrivals.per_s > 0 and arrivals.jobs:
            interval_s = self._luck.interval_s(arrivals.per_s / self._bulk(after_s))
            self._add(after_s + interval_s, _Kind.ARRIVE)

    def _bulk(self, at_s: float) -> float:
        """Return how many jobs arrive as one: the farther away, the more it costs to part them."""
        return min(max(at_s / _BULK_S, 1.0), _MOST_AT_ONCE) if self._preemptive else 1.0

    def _decide(self) -> None:
        present, now_s = self._present, self._now_s
        queue = [voyage.as_queued() for voyage in self._waiting.values()]
        running = (
            [voyage.as_running(now_s) for voyage in self._running.values()]
            if self._sees_running
            else []
        )
        now_ms = present.now_ms + round(now_s * 1000)
        decisions = cycle(
            queue, self._snapshot, now_ms, present.policy, running, ledger=self._ledger
        )
        self._act([one for one in decisions if not isinstance(one, Hold)])
        if self._preemptive and self._running:
            self._look_s = now_s + max(_LOOK_S, now_s * _LOOK_SHARE)
            self._add(self._look_s, _Kind.LOOK)

    def _act(self, changes: Sequence[Place | Preempt | Resize]) -> None:
        for change in changes:
            if change.job in self._running:
                voyage = self._running[change.job]
                self._give_back(voyage)
                voyage.stop(self._now_s)
                self._waiting[change.job] = voyage
        for change in changes:
            if not isinstance(change, Preempt):
                self._start(self._waiting.pop(change.job), change.placement)

    def _start(self, voyage: Voyage, placement: Placement) -> None:
        if not Statement(self._snapshot).allocate(placement.kind, placement.devices):
            raise AssertionError(f"job {voyage.id} was given devices that are not idle")
        self.starts.setdefault(voyage.id, self._told(self._now_s))
        voyage.start(placement, self._now_s, self._present.start_s)
        self._ledger.charge(voyage.project, voyage.plan)
        self._keep(voyage)

    def _keep(self, voyage: Voyage) -> None:
        """Let a job that has devices train; without preemption that settles when it ends."""
        self._running[voyage.id] = voyage
        self._add(voyage.ends_s, _Kind.END, voyage.id, voyage.generation)
        if not self._preemptive:
            self._open.discard(voyage.id)
            self.ends.setdefault(voyage.id, self._told(voyage.ends_s))

    def _give_back(self, voyage: Voyage) -> None:
        held = voyage.placement
        if held is None or not Statement(self._snapshot).evict(held.kind, held.devices):
            raise AssertionError(f"job {voyage.id} gave back devices that it did not hold")
        if voyage.bulk:
            self._given_away_s += voyage.held_device_s(self._now_s)
        self._ledger.charge(voyage.project, None, held=voyage.plan)
        del self._running[voyage.id]

    def _add(self, at_s: float, kind: _Kind, job: JobId = _NO_JOB, generation: int = 0) -> None:
        self._events += 1
        heapq.heappush(self._agenda, (at_s, kind, self._events, job, generation))
