"""From outcomes to the numbers that people compare."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from frenzy_simulator.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """CPU time per cycle, microseconds; reasons for waiting are lazy and not in it."""

    mean: float
    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One policy's results. Times in seconds; ``gpu_hours`` are held, start-up included.

    ``utilization`` is held device time over all device time up to the last end. ``unfairness`` is
    the share of jobs that took longer than alone times the jobs present: than with an equal share.
    ``unsolved`` counts the cycles in which a solver's time limit struck.
    """

    policy: str
    jobs: int
    finished: int
    infeasible: int
    avg_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    makespan_s: float
    avg_wait_s: float
    gpu_hours: float
    utilization: float
    preemptions: int
    restart_gpu_hours: float
    oom: int
    node_failures: int
    unfairness: float
    decision_cpu_us: Quantiles
    cycles: int
    unsolved: int

    def as_json(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return asdict(self)


def summarize(outcome: Outcome) -> Summary:
    """Summarise one policy's outcome. Means of nothing are 0."""
    done = outcome.done
    times = sorted(job.completion_s for job in done)
    first_s = min((job.submit_s for job in done), default=0.0)
    makespan_s = max((job.finish_s for job in done), default=0.0) - first_s
    device_s = sum(job.device_s for job in done)
    unfair = sum(job.completion_s > job.alone_s * max(job.mean_open, 1.0) for job in done)
    cpu_us = sorted(ns / 1000 for ns in outcome.decision_ns)
    return Summary(
        policy=outcome.policy,
        jobs=len(done) + len(outcome.never) + len(outcome.unfinished),
        finished=len(done),
        infeasible=len(outcome.never),
        avg_jct_s=_mean(times),
        p50_jct_s=quantile(times, 0.5),
        p99_jct_s=quantile(times, 0.99),
        makespan_s=makespan_s,
        avg_wait_s=_mean([job.wait_s for job in done]),
        gpu_hours=device_s / 3600,
        utilization=device_s / (outcome.devices * makespan_s) if makespan_s else 0.0,
        preemptions=outcome.preemptions,
        restart_gpu_hours=sum(job.restart_device_s for job in done) / 3600,
        oom=sum(job.ooms for job in done),
        node_failures=outcome.node_failures,
        unfairness=unfair / len(done) if done else 0.0,
        decision_cpu_us=Quantiles(
            mean=_mean(cpu_us),
            p50=quantile(cpu_us, 0.5),
            p99=quantile(cpu_us, 0.99),
            max=max(cpu_us, default=0.0),
        ),
        cycles=len(cpu_us),
        unsolved=outcome.unsolved,
    )


def quantile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of the values do not exceed."""
    if not ascending:
        return 0.0
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
