"""Gavel's heterogeneity-aware max-min fairness: a linear program, and rounds that follow it.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads" (OSDI'20). ``shares`` finds which share of its time each job spends on each kind, so
that the worst-off job does best: a job's throughput counts relative to what it would have with the
cluster's mix of kinds, times its devices, by its weight. Every ``round_s`` jobs get devices in the
order of share / (share of its time so far that the job had that kind).

Ours: the program is solved when jobs come and go; what the worst-off cannot use goes where it adds
most; devices that come free inside a round, or that the shares leave over, are given out in the
same order at once, all of which is to its advantage. It keeps the number of devices that users
asked for (``rigid``). HiGHS solves within ``time_limit_s``; ``unsolved`` counts the times that the
limit struck, and the old shares then stand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.walk import capacity
from frenzy_scheduler.core.urgency import weight
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Job = QueuedJob | RunningJob
Pair = tuple[JobId, str]  # a job on a kind

_REST: Final = 1e-4  # what the average counts beside the worst-off
_LEAST: Final = 1e-6  # a smaller share of time is none


@dataclass
class Gavel:
    """Follow the shares round by round; see the module."""

    name: str = "gavel"
    preemptive: bool = True
    round_s: float = 360.0
    time_limit_s: float = 5.0
    unsolved: int = field(default=0, compare=False)
    _shares: dict[Pair, float] = field(default_factory=dict[Pair, float])
    _solved_for: frozenset[JobId] = frozenset()
    _received_s: dict[Pair, float] = field(default_factory=dict[Pair, float])
    _seen_ms: int = 0
    _next_ms: int = 0

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Return the plans of this round, the widest first."""
        self._account(view)
        changeable = [job for job in view.running if job.changeable]
        jobs: list[Job] = [*view.queue, *changeable]
        jobs.sort(key=lambda job: (job.sequence, job.id))
        free = capacity(view.snapshot, changeable)
        self._solve(jobs, free)
        chosen: dict[JobId, ResourcePlan] = {}
        if view.now_ms < self._next_ms:
            chosen = {job.id: job.plan for job in changeable if job.plan is not None}
            for plan in chosen.values():
                free[plan.kind] -= plan.device_count
        else:
            self._next_ms = view.now_ms + round(self.round_s * 1000)
        waiting = [job for job in jobs if job.id not in chosen]
        pairs = [(job, plan) for job in waiting for plan in options(job, free).values()]
        pairs.sort(key=lambda pair: -self._priority(pair[0], pair[1].kind, view.now_ms))
        for job, plan in pairs:
            if job.id not in chosen and plan.device_count <= free[plan.kind]:
                free[plan.kind] -= plan.device_count
                chosen[job.id] = plan
        return dict(sorted(chosen.items(), key=lambda item: -item[1].device_count))

    def _account(self, view: View) -> None:
        """Book the time since the last look for the jobs that run."""
        for job in view.running:
            since_ms = max(self._seen_ms, job.placed_ms)
            pair = (job.id, job.placement.kind)
            received_s = self._received_s.get(pair, 0.0)
            self._received_s[pair] = received_s + (view.now_ms - since_ms) / 1000
        self._seen_ms = view.now_ms

    def _solve(self, jobs: Sequence[Job], free: Mapping[str, int]) -> None:
        present = frozenset(job.id for job in jobs)
        if present == self._solved_for:
            return
        found = shares(jobs, free, self.time_limit_s)
        self.unsolved += found is None
        self._shares = self._shares if found is None else found
        self._solved_for = present

    def _priority(self, job: Job, kind: str, now_ms: int) -> float:
        share = self._shares.get((job.id, kind), 0.0)
        if share < _LEAST:
            return 0.0
        age_s = max((now_ms - job.progress.arrived_ms) / 1000, 1.0)
        received_s = max(self._received_s.get((job.id, kind), 0.0), 1.0)
        return share / (received_s / age_s)


def options(job: Job, free: Mapping[str, int]) -> dict[str, ResourcePlan]:
    """Return the job's fastest plan of each kind, if there are as many devices."""
    fastest: dict[str, ResourcePlan] = {}
    for plan in job.plans:
        best = fastest.get(plan.kind)
        if plan.device_count > free.get(plan.kind, 0):
            continue
        if best is None or plan.speed.step_s < best.speed.step_s:
            fastest[plan.kind] = plan
    return fastest


def worth(job: Job, free: Mapping[str, int]) -> dict[str, float]:
    """Return, by kind, what all of a job's time there counts in the objective."""
    found, devices = options(job, free), sum(free.values())
    mixed = sum(free[kind] / devices / plan.speed.step_s for kind, plan in found.items())
    scale = weight(job.priority, job.standing) * mixed
    return {
        kind: plan.device_count / plan.speed.step_s / scale if scale else 0.0
        for kind, plan in found.items()
    }


def shares(
    jobs: Sequence[Job], free: Mapping[str, int], time_limit_s: float = 5.0
) -> dict[Pair, float] | None:
    """Return the shares of time that are best for the worst-off job; None: not found in time."""
    jobs = [job for job in jobs if options(job, free)]  # nobody is worse off for who cannot run
    plans = [(row, plan) for row, job in enumerate(jobs) for plan in options(job, free).values()]
    if not plans:
        return {}
    values = [worth(job, free) for job in jobs]
    kinds = {kind: 2 * len(jobs) + number for number, kind in enumerate(sorted(free))}
    least = len(plans)  # the column of the worst-off job's value
    entries: list[tuple[int, int, float]] = [(row, least, 1.0) for row in range(len(jobs))]
    for column, (row, plan) in enumerate(plans):
        entries += [
            (row, column, -values[row][plan.kind]),
            (len(jobs) + row, column, 1.0),
            (kinds[plan.kind], column, float(plan.device_count)),
        ]
    rows, columns, cells = zip(*entries, strict=True)
    matrix = csr_array((cells, (rows, columns)), shape=(2 * len(jobs) + len(kinds), least + 1))
    limits = [0.0] * len(jobs) + [1.0] * len(jobs) + [float(free[kind]) for kind in sorted(free)]
    gains = [_REST / len(jobs) * values[row][plan.kind] for row, plan in plans]
    result = linprog(
        -np.array([*gains, 1.0]),
        A_ub=matrix,
        b_ub=np.array(limits),
        method="highs",
        options={"time_limit": time_limit_s},
    )
    if result.x is None:
        return None
    found = result.x.tolist()
    return {
        (jobs[row].id, plan.kind): share for (row, plan), share in zip(plans, found, strict=False)
    }
