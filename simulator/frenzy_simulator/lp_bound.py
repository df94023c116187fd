"""A tighter lower bound on the average completion time: prices of kinds that change with time.

Relax every schedule to fluid work: job j does a share of its work with plan p at any moment, at
most one plan's worth at a time, under each kind's number of devices. A job ends no earlier than
its mean busy time (the average moment at which its work is done) plus half of what it takes alone.

A linear program over time slots and kinds gives prices: the duals of the kinds' devices in each
slot. It need not be exact, because *any* prices give a valid bound: charge jobs for devices, let
each choose freely when and with which plan to work, and subtract what all devices could earn
(Lagrange). What one job pays at least is the best over m of m - integral of
max over plans (m - time - price of the plan's work)+ / (seconds of the plan), and again any m
will do. Inside a slot the integrand is convex, so the trapezoid rule only makes the bound smaller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from frenzy_simulator.jobs import SimJob
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import ThroughputModel

MAX_JOBS: Final = 5000
_MOST_COLUMNS: Final = 120_000  # of the linear program
_SLOTS: Final = (12, 96)  # at least, at most
_POINTS: Final = 6  # of the trapezoid rule in a slot
_HALVINGS: Final = 40
_LEAST_STEPS: Final = 1e-9  # nothing is divided by zero for a job that ends at once
_SCALES: Final = (0.7, 0.85, 0.95, 1.0, 1.05)  # of the prices found, all tried

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Work:
    """One job: its plans' kinds (numbers), seconds for the whole job, and device-seconds."""

    ready_s: float
    kinds: NDArray[np.intp]
    seconds: Floats
    device_s: Floats

    @property
    def alone_s(self) -> float:
        return float(self.seconds.min())


def lp_bound_avg_s(
    jobs: Sequence[SimJob],
    model: ThroughputModel,
    devices: Mapping[str, int],
    scenario: Scenario,
    time_limit_s: float = 60.0,
) -> float | None:
    """Return the bound for jobs that fit somewhere; None: too many jobs, or no prices in time.

    Predictions count as true; restarts and gangs cost nothing.
    """
    names = sorted(devices)
    work = [found for job in jobs if (found := _work(job, model, scenario, names)) is not None]
    if not work:
        return 0.0
    if len(work) > MAX_JOBS:
        return None
    counts = np.array([float(devices[name]) for name in names])
    edges = _edges(work, counts)
    prices = _prices(work, counts, edges, time_limit_s)
    if prices is None:
        return None
    best = max(_bound(work, counts, edges, prices * scale) for scale in _SCALES)
    return best + scenario.start_s


def _work(
    job: SimJob, model: ThroughputModel, scenario: Scenario, names: Sequence[str]
) -> _Work | None:
    plans, steps = model.plans(job.setup), scenario.real_steps(job)
    if not plans:
        return None
    seconds = np.array([plan.speed.step_s * max(steps, _LEAST_STEPS) for plan in plans])
    return _Work(
        ready_s=job.submit_s + scenario.start_s,
        kinds=np.array([names.index(plan.kind) for plan in plans]),
        seconds=seconds,
        device_s=seconds * [plan.device_count for plan in plans],
    )


def _edges(work: Sequence[_Work], counts: Floats) -> Floats:
    """Cut time into slots: as many between arrivals as arrive, then longer and longer ones."""
    ready = np.array(sorted(one.ready_s for one in work))
    least = sum(float(one.device_s.min()) for one in work) / counts.sum()
    tail_s = 3 * least + max(one.alone_s for one in work)
    slots = int(np.clip(2 * _MOST_COLUMNS // (len(work) * len(counts)), *_SLOTS))
    arriving = np.quantile(ready, np.linspace(0, 1, 2 * slots // 3))
    after = ready[-1] + tail_s * np.linspace(0, 1, slots // 3 + 1)[1:] ** 2
    return np.unique(np.concatenate([arriving, after]))


def _prices(
    work: Sequence[_Work], counts: Floats, edges: Floats, time_limit_s: float
) -> Floats | None:
    """Return a price per device-second for each kind (row) and slot, from the program's duals.

    Columns are shares of a job's work on a kind in a slot, at the plan that uses least of the
    kind, at the slot's middle; and one share after all slots, which makes it always feasible.
    """
    slots, middles, lengths = len(edges) - 1, (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    rows: list[NDArray[np.intp]] = []
    columns: list[NDArray[np.intp]] = []
    cells: list[Floats] = []
    costs: list[Floats] = []
    tops: list[Floats] = []
    owners: list[int] = []
    count = 0
    for row, one in enumerate(work):
        open_slots = np.arange(int(np.searchsorted(middles, one.ready_s)), slots)
        for kind in np.unique(one.kinds):
            mine = one.kinds == kind
            rows.append(kind * slots + open_slots)
            columns.append(np.arange(count, count + len(open_slots)))
            cells.append(np.full(len(open_slots), one.device_s[mine].min()))
            costs.append(middles[open_slots])
            tops.append(np.minimum(lengths[open_slots] / one.seconds[mine].min(), 1.0))
            owners += [row] * len(open_slots)
            count += len(open_slots)
        costs.append(np.array([edges[-1] + one.alone_s / 2]))
        tops.append(np.ones(1))
        owners.append(row)
        count += 1
    used = csr_array(
        (np.concatenate(cells), (np.concatenate(rows), np.concatenate(columns))),
        shape=(len(counts) * slots, count),
    )
    whole = csr_array((np.ones(count), (owners, np.arange(count))), shape=(len(work), count))
    top = np.concatenate(tops)
    result = linprog(
        np.concatenate(costs),
        A_ub=used,
        b_ub=np.outer(counts, lengths).ravel(),
        A_eq=whole,
        b_eq=np.ones(len(work)),
        bounds=np.column_stack([np.zeros(count), top]),
        method="highs",
        options={"time_limit": time_limit_s},
    )
    if result.status != 0:
        return None
    duals: Floats = -result.ineqlin.marginals.reshape(len(counts), slots)
    return np.maximum(duals, 0.0)


def _bound(work: Sequence[_Work], counts: Floats, edges: Floats, prices: Floats) -> float:
    """Return what all jobs pay at least, less what all devices could earn, on average."""
    fine = np.concatenate(
        [np.linspace(start, end, _POINTS, endpoint=False) for start, end in pairwise(edges)]
    )
    fine = np.append(fine, edges[-1])
    slot = np.repeat(np.arange(len(edges) - 1), _POINTS)
    total = -float((prices * np.outer(counts, np.diff(edges))).sum())
    for one in work:
        first = int(np.searchsorted(fine, one.ready_s, side="right")) - 1
        left, right = np.maximum(fine[first:-1], one.ready_s), fine[first + 1 :]
        paid = prices[one.kinds][:, slot[first:]] * one.device_s[:, None]
        total += _least(one, left, right, paid) - one.ready_s + one.alone_s / 2
    return total / len(work)


def _least(one: _Work, left: Floats, right: Floats, paid: Floats) -> float:
    """Return the most of the lower bounds on what one job pays, over m; see the module."""
    seconds, end_s = one.seconds[:, None], max(float(right[-1]), one.ready_s)
    rate = 1.0 / one.alone_s

    def value(most: float) -> tuple[float, float]:
        starts, ends = (most - left - paid) / seconds, (most - right - paid) / seconds
        high, low = np.maximum(starts.max(0), 0.0), np.maximum(ends.max(0), 0.0)
        after_s = max(most - end_s, 0.0)  # when devices cost nothing any more
        area = float(((high + low) / 2 * (right - left)).sum()) + after_s * after_s / 2 * rate
        speed = np.where(high + low > 0, 1.0 / one.seconds[starts.argmax(0)], 0.0)
        return most - area, 1.0 - float((speed * (right - left)).sum()) - after_s * rate

    low_s, high_s, best = one.ready_s, end_s + one.alone_s, -np.inf
    for _ in range(_HALVINGS):
        middle = (low_s + high_s) / 2
        found, slope = value(middle)
        best = max(best, found)
        low_s, high_s = (middle, high_s) if slope > 0 else (low_s, middle)
    return best
