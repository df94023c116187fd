"""CPU time of one decision, reasons aside, by cluster and queue size."""

import time
from dataclasses import dataclass

from benchmarks.scheduling.instances import SETTLED_MS, Instance, empty, one_event

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Strategy
from frenzy_scheduler.core.policies import policy_named

GPUS = (64, 512, 2048, 10_000)
JOBS = (40, 160, 640, 2_500, 10_000)
POLICIES = ("has", "fifo", "srtf", "backfill", "frenzy", "srtf-preemptive", "las")
REPEATS, ENOUGH_MS = 15, 1000.0
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
    sizes = [(gpus, jobs) for gpus in GPUS for jobs in JOBS]
    found = [_cost(name, *size) for name in names for size in sizes]
    return found + [_cost(name, *CENTRE) for name in POLICIES if name not in names]


def _cost(name: str, gpus: int, jobs: int) -> Cost:
    policy = policy_named(name)
    if policy is None:
        raise ValueError(f"no policy is called {name}")
    full = _cpu_ms(empty(gpus, jobs), policy, 0)
    event = _cpu_ms(one_event(gpus, jobs, policy), policy, SETTLED_MS)
    return Cost(policy=name, gpus=gpus, jobs=jobs, full_ms=full, event_ms=event)


def _cpu_ms(instance: Instance, policy: Strategy, now_ms: int) -> float:
    """Return the best of several cycles: what the decision costs when nothing else interferes."""
    best, spent = float("inf"), 0.0
    for _ in range(REPEATS):
        started = time.thread_time_ns()
        cycle(instance.queue, instance.snapshot, now_ms, policy, instance.running)
        took = (time.thread_time_ns() - started) / 1e6
        best, spent = min(best, took), spent + took
        if spent > ENOUGH_MS:
            break
    return round(best, 3)
