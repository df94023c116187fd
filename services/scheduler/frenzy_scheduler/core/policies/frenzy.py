"""Frenzy's own policy: elastic, preemptive, remaining time first by marginal gain.

MARP predicts the speed of every plan and the specification gives the steps, so what is left of a
job is known for each of its plans. Devices are handed out one step at a time, always where they
buy most: a start, or a wider or faster plan for a job that has one. The gain of a plan is the
job's weight times (seconds left) ** -power; its cost is its devices at the price of their kind.

Nothing is changed without need. A running job's other plans are charged with the restart and with
``hysteresis``; a job that got its devices less than ``min_run_s`` ago keeps them. Weight grows
with age, so that nobody starves. Why these numbers: docs/explanation/policies.md.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.walk import capacity
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Job = QueuedJob | RunningJob

_LEAST_PRICE: Final = 0.02  # of a kind that hardly any job can use
_LEAST_EXTRA: Final = 0.1  # share of a plan's cost that a faster plan costs at least on top
_LEAST_LEFT_S: Final = 1.0
_UNKNOWN_DEVICE_S: Final = 600.0  # left of a job of unknown length that has had nothing yet


@dataclass(frozen=True, slots=True)
class Frenzy:
    """Give devices to the jobs and plans in which they shorten completion times most."""

    name: str = "frenzy"
    preemptive: bool = True
    power: float = 0.7
    hysteresis: float = 1.3
    restart_factor: float = 1.5
    min_run_s: float = 120.0
    ageing_s: float = 6 * 3600.0

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Return the plan of each job that should run, the widest gangs first."""
        free = capacity(view)
        chosen: dict[JobId, ResourcePlan] = {}
        jobs: list[Job] = list(view.queue)
        for job in view.running:
            plan = job.plan
            if plan is not None and job.preemptible and self._settled(job, view.now_ms):
                jobs.append(job)
            elif plan is not None:
                chosen[job.id] = plan
                if job.preemptible:  # capacity() counts what may be taken
                    free[plan.kind] -= plan.device_count
        jobs.sort(key=lambda job: (job.sequence, job.id))
        prices = kind_prices(jobs)
        _hand_out([self._bid(job, prices, view.now_ms) for job in jobs], free, chosen)
        return dict(sorted(chosen.items(), key=lambda item: -item[1].device_count))

    def _settled(self, job: RunningJob, now_ms: int) -> bool:
        return now_ms - job.placed_ms >= self.min_run_s * 1000

    def _bid(self, job: Job, prices: Mapping[str, float], now_ms: int) -> "_Bid":
        """Value and price every plan of a job."""
        progress = job.progress
        own = job.placement.plan if isinstance(job, RunningJob) else None
        weight = 1.0 + max(now_ms - progress.arrived_ms, 0) / 1000 / self.ageing_s
        charge_s = progress.restart_s * self.restart_factor
        steps = progress.steps_left if progress.steps_left is not None else _guess(job)
        options: list[_Option] = []
        for plan in job.plans:
            left_s = steps * plan.speed.step_s
            if own is not None and plan.id != own:
                left_s = left_s * self.hysteresis + charge_s
            value = weight * max(left_s, _LEAST_LEFT_S) ** -self.power
            options.append(_Option(value, plan.device_count * prices[plan.kind], plan))
        bid = _Bid(job.id, options)
        bid.look(None)
        return bid


def kind_prices(jobs: Sequence[Job]) -> dict[str, float]:
    """Return what a device of each kind is worth to these jobs, the best kind near 1.

    A job values a kind by its work per device there, relative to its best kind: nothing where it
    cannot run. Jobs count alike, so a kind that only few can use, or use well, is cheap.
    """
    worth: dict[str, float] = {}
    for job in jobs:
        least: dict[str, float] = {}
        for plan in job.plans:
            device_s = plan.device_count * plan.speed.step_s
            if device_s < least.get(plan.kind, float("inf")):
                least[plan.kind] = device_s
        best = min(least.values(), default=0.0)
        for kind, device_s in least.items():
            worth[kind] = worth.get(kind, 0.0) + best / device_s
    return {kind: max(total / len(jobs), _LEAST_PRICE) for kind, total in worth.items()}


@dataclass(slots=True)
class _Option:
    value: float
    cost: float
    plan: ResourcePlan


@dataclass(slots=True)
class _Bid:
    """One job's plans, always with the one that gains most per cost on top."""

    job: JobId
    options: list[_Option]
    _ranked: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])  # best last

    def look(self, base: _Option | None) -> None:
        """Rank what beats ``base`` (None: everything) by gain per additional cost."""
        value, cost = (base.value, base.cost) if base else (0.0, 0.0)
        least = cost * _LEAST_EXTRA
        self._ranked = [
            ((option.value - value) / max(option.cost - cost, least), -number)
            for number, option in enumerate(self.options)
            if option.value > value
        ]
        self._ranked.sort()

    @property
    def gain(self) -> float | None:
        """Return the gain per cost of the option on top; None when nothing is left."""
        return self._ranked[-1][0] if self._ranked else None

    def take(self) -> _Option:
        """Remove and return the option on top."""
        return self.options[-self._ranked.pop()[1]]


def _hand_out(
    bids: Sequence[_Bid], free: dict[str, int], chosen: dict[JobId, ResourcePlan]
) -> None:
    """Grant the best bid again and again, until nothing that is bid for is free."""
    held: dict[int, _Option] = {}
    heap = [(-bid.gain, n) for n, bid in enumerate(bids) if bid.gain is not None]
    heapq.heapify(heap)
    while heap:
        number = heap[0][1]
        bid = bids[number]
        option, base = bid.take(), held.get(number)
        plan = option.plan
        returned = base.plan.device_count if base and base.plan.kind == plan.kind else 0
        if plan.device_count <= free.get(plan.kind, 0) + returned:
            if base is not None:
                free[base.plan.kind] += base.plan.device_count
            free[plan.kind] -= plan.device_count
            chosen[bid.job], held[number] = plan, option
            bid.look(option)
        gain = bid.gain
        if gain is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (-gain, number))


def _guess(job: Job) -> float:
    """Return steps for a job of unknown length: as much work again as it has had."""
    device_s = max(job.progress.attained_device_s, _UNKNOWN_DEVICE_S)
    return device_s / min(plan.device_count * plan.speed.step_s for plan in job.plans)
