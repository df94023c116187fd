"""Ask for forecasts at random moments of a simulated month."""

import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, Strategy
from frenzy_scheduler.core.forecast import USUAL, Assumptions, Eta, forecast
from frenzy_scheduler.core.future import Arrivals, Present
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.ids import JobId

WARM_UP_S = 24 * 3600.0  # the cluster fills first
MEASURED_SIGMA = 0.05  # real runs fluctuate; the simulator's step times would be exact
RECENT_JOBS, RECENT_S, LEAST_S = 100, 24 * 3600.0, 3600.0  # as frenzy_scheduler.recent


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One prediction for one job. ``position`` 0: it was running. ``alone_s``: its first plan."""

    job: JobId
    at_s: float
    position: int
    alone_s: float
    eta: Eta


@dataclass(kw_only=True)
class Asker:
    """Watches a simulation and asks every ``every_s`` on average while somebody waits."""

    strategy: Strategy
    seed: int
    every_s: float
    start_s: float
    assumptions: Assumptions = USUAL
    asked: list[Asked] = field(default_factory=list)
    cpu_ms: list[tuple[int, float]] = field(default_factory=list)  # (jobs that wait, CPU)
    futures: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin when the cluster is full."""
        self._draw = random.Random(f"ask/{self.seed}")
        self._next_s = WARM_UP_S
        self._arrived: deque[tuple[float, QueuedJob]] = deque(maxlen=RECENT_JOBS)
        self._known: set[JobId] = set()

    def look(
        self,
        queue: Sequence[QueuedJob],
        running: Sequence[RunningJob],
        snapshot: Snapshot,
        now_ms: int,
    ) -> None:
        """Note arrivals; ask when it is time."""
        now_s = now_ms / 1000
        for job in queue:
            if job.id not in self._known:
                self._known.add(job.id)
                self._arrived.append((now_s, job))
        if now_s >= self._next_s and queue:
            self._next_s = now_s + self._draw.expovariate(1 / self.every_s)
            self._ask(queue, [self._measured(job) for job in running], snapshot, now_ms)

    def _ask(
        self,
        queue: Sequence[QueuedJob],
        running: Sequence[RunningJob],
        snapshot: Snapshot,
        now_ms: int,
    ) -> None:
        present = Present(
            queue=queue,
            running=running,
            snapshot=snapshot,
            now_ms=now_ms,
            policy=self.strategy,
            arrivals=self._arrivals(now_ms / 1000),
            start_s=self.start_s,
        )
        started = time.thread_time()
        found = forecast(present, seed=self.seed, assumptions=self.assumptions)
        self.cpu_ms.append((len(queue), 1000 * (time.thread_time() - started)))
        self.futures.append(found.futures)
        waiting = sorted(queue, key=lambda job: (job.sequence, job.id))
        for position, job in [*enumerate(waiting, 1), *((0, job) for job in running)]:
            steps = job.progress.steps_left or 0.0
            self.asked.append(
                Asked(
                    job=job.id,
                    at_s=now_ms / 1000,
                    position=position,
                    alone_s=steps * job.plans[0].speed.step_s,
                    eta=found.etas[job.id],
                )
            )

    def _measured(self, job: RunningJob) -> RunningJob:
        step_s = job.progress.step_s
        if step_s is None:
            return job
        noise = math.exp(random.Random(f"{self.seed}/{job.id}").gauss(0.0, MEASURED_SIGMA))
        return replace(job, progress=replace(job.progress, step_s=step_s * noise))

    def _arrivals(self, now_s: float) -> Arrivals:
        recent = [(at_s, job) for at_s, job in self._arrived if at_s > now_s - RECENT_S]
        if not recent:
            return Arrivals()
        span_s = now_s - recent[0][0] if len(recent) == RECENT_JOBS else RECENT_S
        jobs = tuple(job for _, job in recent)
        return Arrivals(per_s=len(jobs) / max(span_s, LEAST_S), jobs=jobs)
