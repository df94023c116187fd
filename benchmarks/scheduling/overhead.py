"""CPU time of one decision, reasons aside, by cluster and queue size."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.scheduling.instances import SETTLED_MS, Instance, empty, one_event

from frenzy_scheduler.core.between import Between
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Allocator, Decision, Strategy, View
from frenzy_scheduler.core.policies import policy_named
from frenzy_scheduler.core.policies.frenzy import Frenzy
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.core.standing import Standing

SIZES = (  # GPUs, jobs
    (64, 40),
    (64, 640),
    (512, 160),
    (512, 2_500),
    (2_048, 40),
    (2_048, 640),
    (2_048, 10_000),
    (10_000, 640),
    (10_000, 10_000),
)
POLICIES = ("has", "fifo", "srtf", "backfill", "frenzy", "srtf-preemptive", "las")
REPEATS, ENOUGH_MS = 15, 1000.0
MOST = 64  # who take part in a decision of frenzy between two of everybody, of each sort
CENTRE = (2048, 640)  # GPUs, jobs: the size that the literature reports


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Milliseconds of CPU: ``full`` for a queue and an idle cluster, ``event`` when a job ended."""

    policy: str
    gpus: int
    jobs: int
    full_ms: float
    event_ms: float


def measure(names: tuple[str, ...] = ("has", "frenzy")) -> list[Cost]:
    """Measure ``names`` at every size, and all policies at the central size."""
    found = [_cost(name, *size) for name in names for size in SIZES]
    return found + [_cost(name, *CENTRE) for name in POLICIES if name not in names]


def _cost(name: str, gpus: int, jobs: int) -> Cost:
    policy = policy_named(name)
    if policy is None:
        raise ValueError(f"no policy is called {name}")
    full = empty(gpus, jobs)
    full_ms = _cpu_ms(lambda: partial(cycle, full.queue, full.snapshot, 0, policy))
    event = one_event(gpus, jobs, policy)
    event_ms = _cpu_ms(lambda: _after_one_event(event, policy))
    return Cost(policy=name, gpus=gpus, jobs=jobs, full_ms=full_ms, event_ms=event_ms)


def _after_one_event(event: Instance, policy: Strategy) -> Callable[[], object]:
    """Return the decision after the event: by a standing line where the policy can have one."""
    if isinstance(policy, Frenzy) and len(event.queue) + len(event.running) > 2 * MOST:
        return _among_few(event, policy)
    if isinstance(policy, Allocator):
        return partial(cycle, event.queue, event.snapshot, SETTLED_MS, policy, event.running)
    standing = Standing(policy)
    for job in event.queue:
        standing.add(job)
    standing.decide(Snapshot({}), SETTLED_MS)  # everybody was refused before
    for kind in event.snapshot.idle_by_kind:
        standing.freed(kind)
    return partial(standing.decide, event.snapshot, SETTLED_MS)


def _among_few(event: Instance, policy: Frenzy) -> Callable[[], object]:
    """Return the decision among those who wanted devices most when everybody was compared."""
    waiting = {job.id: job for job in event.queue}
    placed = {job.id: job for job in event.running}
    between = Between(policy, most=MOST)
    between.compared(
        View(queue=event.queue, running=event.running, snapshot=event.snapshot, now_ms=SETTLED_MS)
    )

    def decide() -> list[Decision]:
        first, second = between.taking_part(waiting, placed)
        queue, running = [waiting[name] for name in first], [placed[name] for name in second]
        return cycle(queue, event.snapshot, SETTLED_MS, between.policy, running)

    return decide


def _cpu_ms(prepare: Callable[[], Callable[[], object]]) -> float:
    """Return the best of several decisions: what one costs when nothing else interferes."""
    best, spent = float("inf"), 0.0
    for _ in range(REPEATS):
        decide = prepare()
        started = time.thread_time_ns()
        decide()
        took = (time.thread_time_ns() - started) / 1e6
        best, spent = min(best, took), spent + took
        if spent > ENOUGH_MS:
            break
    return round(best, 3)
