"""Sia's integer program, without batch adaptation: free device count, any kind.

Source: Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
scheduling" (SOSP'23), and its artifact. For each job and configuration the goodput is normalised
to the job's worst one and raised to p = -0.5; a change of a running job is multiplied by the
restart factor (age - restarts x price) / (age + price), 1 for a job younger than the price; a job
without devices costs lambda = 1.1. The sum is minimised under the number of devices of each kind.
A job that is still starting is not touched: that, and the restarts in the factor, keep it calm.

Ours: configurations are MARP's plans, goodput is steps per second (the batch is fixed), and it
decides at every event instead of once a minute, which is to its advantage. ``informed`` weighs
jobs by 1 / (seconds left on their best plan), which Sia does not know. HiGHS solves, within
``time_limit_s`` and a relative gap of ``gap``; ``unsolved`` counts the times that the limit struck.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View, seconds_left
from frenzy_scheduler.core.policies.walk import capacity
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Job = QueuedJob | RunningJob

_POWER: Final = -0.5
_UNALLOCATED: Final = 1.1
_LEAST_FACTOR: Final = 0.05  # of a job that has spent nearly all its time on restarts


@dataclass
class Sia:
    """Minimise the sum over jobs; see the module."""

    name: str = "sia"
    preemptive: bool = True
    informed: bool = False
    time_limit_s: float = 5.0
    gap: float = 1e-3
    unsolved: int = field(default=0, compare=False)
    _starts: dict[JobId, tuple[int, int]] = field(default_factory=dict[JobId, tuple[int, int]])

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Return the plans that solve the program, the widest first."""
        self._count_starts(view.running)
        changeable = [job for job in view.running if job.changeable and _trains(job, view.now_ms)]
        kept = {job.id: job.plan for job in view.running if job not in changeable and job.plan}
        jobs: list[Job] = [*view.queue, *changeable]
        jobs.sort(key=lambda job: (job.sequence, job.id))
        columns = [(number, plan) for number, job in enumerate(jobs) for plan in job.plans]
        if not columns:
            return kept
        costs = [cost for job in jobs for cost in self.costs(job, view.now_ms)]
        taken = self._solve(costs, columns, len(jobs), capacity(view.snapshot, changeable))
        chosen = kept | {
            jobs[number].id: plan for (number, plan), use in zip(columns, taken, strict=True) if use
        }
        return dict(sorted(chosen.items(), key=lambda item: -item[1].device_count))

    def costs(self, job: Job, now_ms: int) -> list[float]:
        """Return what each plan adds to the objective; never positive, so that none is refused."""
        worst_s = max(plan.speed.step_s for plan in job.plans)
        own = job.placement.plan if isinstance(job, RunningJob) else None
        age_s = (now_ms - job.progress.arrived_ms) / 1000
        restart_s = job.progress.restart_s
        lost_s = restart_s * (self._starts.get(job.id, (0, 1))[1] - 1)
        keep = 1.0
        if age_s > restart_s:
            keep = max((age_s - lost_s) / (age_s + restart_s), _LEAST_FACTOR)
        weight = 1.0
        if self.informed:
            best_s = min(seconds_left(job.progress, plan) for plan in job.plans)
            weight = 1.0 / max(best_s, 1.0)
        found = []
        for plan in job.plans:
            goodput = worst_s / plan.speed.step_s
            if own is not None and plan.id != own:
                goodput *= keep
            found.append(weight * (goodput**_POWER - _UNALLOCATED))
        return found

    def _count_starts(self, running: Sequence[RunningJob]) -> None:
        """Note when each job got its devices, and how often it has got any."""
        for job in running:
            placed_ms, starts = self._starts.get(job.id, (-1, 0))
            if job.placed_ms != placed_ms:
                self._starts[job.id] = (job.placed_ms, starts + 1)

    def _solve(
        self,
        costs: Sequence[float],
        columns: Sequence[tuple[int, ResourcePlan]],
        jobs: int,
        free: Mapping[str, int],
    ) -> list[bool]:
        kinds = {kind: jobs + number for number, kind in enumerate(sorted(free))}
        rows = [number for number, _ in columns] + [kinds[plan.kind] for _, plan in columns]
        values = [1.0] * len(columns) + [float(plan.device_count) for _, plan in columns]
        places = [*range(len(columns))] * 2
        matrix = csr_array((values, (rows, places)), shape=(jobs + len(kinds), len(columns)))
        limits = [1.0] * jobs + [float(free[kind]) for kind in sorted(free)]
        scale = max(abs(cost) for cost in costs) or 1.0
        with _stdout_on_stderr():
            result = milp(
                np.array(costs) / scale,
                constraints=LinearConstraint(matrix, ub=np.array(limits)),
                bounds=Bounds(0, 1),
                integrality=np.ones(len(columns)),
                options={"time_limit": self.time_limit_s, "mip_rel_gap": self.gap},
            )
        self.unsolved += result.status != 0
        if result.x is None:
            return [False] * len(columns)
        return [value > 0.5 for value in result.x]


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Keep the solver's notes, which no option silences, out of the output that people parse."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _trains(job: RunningJob, now_ms: int) -> bool:
    return now_ms - job.placed_ms >= job.progress.restart_s * 1000
