"""Sia's integer program, without batch adaptation: free device count, any kind.

Source: Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
scheduling" (SOSP'23). For each job and configuration the goodput is normalised to the job's worst
one and raised to p = -0.5; a change of a running job is multiplied by a restart factor; a job
without devices costs lambda = 1.1. The sum is minimised under the number of devices of each kind.

Ours: configurations are MARP's plans, goodput is steps per second (the batch is fixed), and it
decides at every event instead of once a minute, which is to its advantage. ``informed`` weighs
jobs by 1 / (seconds left on their best plan), which Sia does not know. HiGHS solves, within
``time_limit_s`` and a relative gap of ``gap``; ``unsolved`` counts the times that the limit struck.
"""

from collections.abc import Mapping, Sequence
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
_LEAST_FACTOR: Final = 0.05  # of a restart for a job that has hardly run


@dataclass
class Sia:
    """Minimise the sum over jobs; see the module."""

    name: str = "sia"
    preemptive: bool = True
    informed: bool = False
    time_limit_s: float = 5.0
    gap: float = 1e-3
    unsolved: int = field(default=0, compare=False)

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Return the plans that solve the program, the widest first."""
        changeable = [job for job in view.running if job.changeable]
        jobs: list[Job] = [*view.queue, *changeable]
        jobs.sort(key=lambda job: (job.sequence, job.id))
        columns = [(number, plan) for number, job in enumerate(jobs) for plan in job.plans]
        if not columns:
            return {}
        costs = [cost for job in jobs for cost in self.costs(job, view.now_ms)]
        taken = self._solve(costs, columns, len(jobs), capacity(view.snapshot, changeable))
        chosen = {
            jobs[number].id: plan for (number, plan), use in zip(columns, taken, strict=True) if use
        }
        return dict(sorted(chosen.items(), key=lambda item: -item[1].device_count))

    def costs(self, job: Job, now_ms: int) -> list[float]:
        """Return what each plan adds to the objective; never positive, so that none is refused."""
        worst_s = max(plan.speed.step_s for plan in job.plans)
        own = job.placement.plan if isinstance(job, RunningJob) else None
        age_s = (now_ms - job.progress.arrived_ms) / 1000
        restart_s = job.progress.restart_s
        keep = max((age_s - restart_s) / (age_s + restart_s), _LEAST_FACTOR) if age_s > 0 else 1.0
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
