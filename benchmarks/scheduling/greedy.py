"""The rival to beat: a first greedy of ours, which hands out devices by marginal gain.

All bids are ranked at once by gain in 1 / (seconds left) per priced device; prices are fixed
(T4 0.5, RTX 2080 Ti 1, A100 3), a change of a running job must win by a factor of 1.6, and there
is neither a protected time after a start nor ageing.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

PRICES = {"T4": 0.5, "RTX 2080 Ti": 1.0, "A100 SXM4 40GB": 3.0}
LEAST_EXTRA = 0.25

Job = QueuedJob | RunningJob
Bid = tuple[float, int, int, int | None]  # -gain per price, job number, plan number, base plan


@dataclass(frozen=True)
class Greedy:
    """The rival as an ``Allocator``, so that everything around it is the same."""

    name: str = "greedy"
    preemptive: bool = True
    hysteresis: float = 1.6

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Hand out the whole cluster anew, the best bid first."""
        jobs: list[Job] = [*view.queue, *view.running]
        values = [self._values(job) for job in jobs]
        free = {kind: view.snapshot.total(kind) for kind in view.snapshot.kinds}
        held: dict[int, int] = {}
        heap = [bid for n, job in enumerate(jobs) for bid in _bids(n, job, values[n], None)]
        heapq.heapify(heap)
        while heap:
            _, number, wanted, base = heapq.heappop(heap)
            if held.get(number) != base:
                continue
            plan = jobs[number].plans[wanted]
            old = jobs[number].plans[base] if base is not None else None
            room = free[plan.kind] + (old.device_count if old and old.kind == plan.kind else 0)
            if room < plan.device_count:
                continue
            if old is not None:
                free[old.kind] += old.device_count
            free[plan.kind] -= plan.device_count
            held[number] = wanted
            for bid in _bids(number, jobs[number], values[number], wanted):
                heapq.heappush(heap, bid)
        found = {jobs[n].id: jobs[n].plans[p] for n, p in held.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1].device_count))

    def _values(self, job: Job) -> list[float]:
        own = job.placement.plan if isinstance(job, RunningJob) else None
        steps, restart_s = job.progress.steps_left or 0.0, job.progress.restart_s
        found = []
        for plan in job.plans:
            seconds = steps * plan.speed.step_s
            if plan.id != own:
                seconds += restart_s
                seconds *= self.hysteresis if own is not None else 1.0
            found.append(1.0 / max(seconds, 1.0))
        return found


def _bids(number: int, job: Job, values: list[float], base: int | None) -> Iterator[Bid]:
    value = values[base] if base is not None else 0.0
    cost = _price(job.plans[base]) if base is not None else 0.0
    for wanted, plan in enumerate(job.plans):
        if values[wanted] > value:
            extra = max(_price(plan) - cost, LEAST_EXTRA)
            yield -(values[wanted] - value) / extra, number, wanted, base


def _price(plan: ResourcePlan) -> float:
    return plan.device_count * PRICES[plan.kind]
