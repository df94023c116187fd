"""A lower bound on the average completion time that no scheduler can beat.

Take any prices of the kinds. A job's whole work costs at least the cheapest of its plans (price x
devices x seconds), and the cluster earns at most the sum of its devices' prices. So every schedule
is one of a single machine with that income, where a job needs its least cost. There the sum of
mean busy times (the average moment at which a job's work is done) is smallest when the cheapest
job always goes first (Goemans, mean-busy-time relaxation), and a job ends no earlier than its mean
busy time plus half of what it takes alone. Training cannot begin before one start is over. Every
price vector gives a valid bound; the best of a search over prices is returned. Restarts and gangs
cost nothing here, so the bound is optimistic where they matter.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frenzy_simulator.jobs import SimJob
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import ThroughputModel

_FACTORS: Final = (0.25, 0.5, 0.8, 1.25, 2.0, 4.0)  # tried on each price in turn
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Work:
    ready_s: float  # submitted and started
    alone_s: float
    seconds: Mapping[str, float]  # least device-seconds by kind


def bound_avg_s(
    jobs: Sequence[SimJob],
    model: ThroughputModel,
    devices: Mapping[str, int],
    scenario: Scenario,
) -> float:
    """Return the bound for jobs that fit somewhere; 0 when none does. Predictions count as true."""
    work = [found for job in jobs if (found := _work(job, model, scenario)) is not None]
    if not work:
        return 0.0
    work.sort(key=lambda one: one.ready_s)
    prices = {kind: _typical_speed(kind, work) for kind in devices}
    best = _bound(work, devices, prices)
    for _ in range(_ROUNDS):
        before = best
        for kind in devices:
            for factor in _FACTORS:
                tried = {**prices, kind: prices[kind] * factor}
                value = _bound(work, devices, tried)
                if value > best:
                    best, prices = value, tried
        if best <= before * 1.001:
            break
    return best + scenario.start_s


def _work(job: SimJob, model: ThroughputModel, scenario: Scenario) -> _Work | None:
    plans, steps = model.plans(job.setup), scenario.real_steps(job)
    if not plans:
        return None
    seconds: dict[str, float] = {}
    for plan in plans:
        device_s = plan.device_count * plan.speed.step_s * steps
        seconds[plan.kind] = min(device_s, seconds.get(plan.kind, device_s))
    alone_s = min(plan.speed.step_s for plan in plans) * steps
    return _Work(job.submit_s + scenario.start_s, alone_s, seconds)


def _typical_speed(kind: str, work: Sequence[_Work]) -> float:
    shares = [min(one.seconds.values()) / one.seconds[kind] for one in work if kind in one.seconds]
    return max(sum(shares) / len(work), 0.01)


def _bound(work: Sequence[_Work], devices: Mapping[str, int], prices: Mapping[str, float]) -> float:
    """Run the one machine: always the cheapest job, from its submission on."""
    income = sum(prices[kind] * count for kind, count in devices.items())
    waiting: list[tuple[float, int, float]] = []  # whole cost, number, seconds left
    total = sum(one.alone_s / 2 for one in work)
    now_s = 0.0
    for number, one in enumerate(work):
        total += _advance(waiting, work, income, now_s, one.ready_s)
        now_s = one.ready_s
        cost = min(prices[kind] * seconds for kind, seconds in one.seconds.items())
        heapq.heappush(waiting, (cost, number, cost / income))
    total += _advance(waiting, work, income, now_s, float("inf"))
    return total / len(work)


def _advance(
    waiting: list[tuple[float, int, float]],
    work: Sequence[_Work],
    income: float,
    now_s: float,
    until_s: float,
) -> float:
    """Work from now until then; return the mean busy time since readiness that this adds."""
    added = 0.0
    while waiting and now_s < until_s:
        cost, number, left_s = heapq.heappop(waiting)
        done_s = min(left_s, until_s - now_s)
        share = done_s / (cost / income)
        added += share * (now_s + done_s / 2 - work[number].ready_s)
        now_s += done_s
        if done_s < left_s:
            heapq.heappush(waiting, (cost, number, left_s - done_s))
    return added
