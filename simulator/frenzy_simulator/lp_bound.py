"""A tighter lower bound on the average completion time: prices of kinds that change with time.

Relax every schedule to fluid work: job j does a share of its work with plan p at any moment, at
most one plan's worth at a time, under each kind's number of devices. *Any* prices of devices in
time slots then give a valid bound (Lagrange): charge jobs for devices, let each choose freely when
and with which plan to work, and subtract what all devices could earn. What one job pays at least
is in ``priced``.

Whoever trains with a plan has had its devices for a start before. So the seconds of a plan are
those of its training and of one start: the shares of a job that trains with several plans add up
to no less. Where the next attempt gets ready beside the training, only the first start counts.

Good prices come from a linear program: it lets jobs end at their mean busy time (the average
moment at which their work is done) plus half of what they take alone; its duals are the first
prices. From there they follow what jobs would buy: up where that is more than the kind has.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from frenzy_simulator.jobs import SimJob
from frenzy_simulator.priced import Floats, Work, least
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import ThroughputModel

MAX_JOBS: Final = 5000
_MOST_COLUMNS: Final = 120_000  # of the linear program
_SLOTS: Final = (12, 96)  # at least, at most
_LEAST_STEPS: Final = 1e-9  # nothing is divided by zero for a job that ends at once
_LOOKS: Final = 24_000  # at one job, to improve the prices
_ROUNDS: Final = (4, 40)  # of looking at all jobs, at least and at most
_STEP: Final = 0.25  # of a price in the first round, in mean prices; it becomes less and less
_INERTIA: Final = 0.8


def lp_bound_avg_s(
    jobs: Sequence[SimJob],
    model: ThroughputModel,
    devices: Mapping[str, int],
    scenario: Scenario,
    time_limit_s: float = 60.0,
) -> float | None:
    """Return the bound for jobs that fit somewhere; None: too many jobs, or no prices in time.

    Predictions count as true; restarts cost no more than a start.
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
    return None if prices is None else _ascend(work, counts, edges, prices)


def _work(
    job: SimJob, model: ThroughputModel, scenario: Scenario, names: Sequence[str]
) -> Work | None:
    plans, steps = model.plans(job.setup), scenario.real_steps(job)
    if not plans:
        return None
    restart_s = scenario.restart_s(model.checkpoint_bytes(job.setup))
    each_s = 0.0 if scenario.make_before_break else min(scenario.start_s, restart_s)
    seconds = np.array([plan.speed.step_s * max(steps, _LEAST_STEPS) for plan in plans]) + each_s
    return Work(
        ready_s=job.submit_s + scenario.start_s - each_s,
        late_s=scenario.start_s - each_s,
        kinds=np.array([names.index(plan.kind) for plan in plans]),
        seconds=seconds,
        device_s=seconds * [plan.device_count for plan in plans],
    )


def _edges(work: Sequence[Work], counts: Floats) -> Floats:
    """Cut time into slots: as many between arrivals as arrive, then longer and longer ones."""
    ready = np.array(sorted(one.ready_s for one in work))
    least = sum(float(one.device_s.min()) for one in work) / counts.sum()
    tail_s = 3 * least + max(one.alone_s for one in work)
    slots = int(np.clip(2 * _MOST_COLUMNS // (len(work) * len(counts)), *_SLOTS))
    arriving = np.quantile(ready, np.linspace(0, 1, 2 * slots // 3))
    after = ready[-1] + tail_s * np.linspace(0, 1, slots // 3 + 1)[1:] ** 2
    return np.unique(np.concatenate([arriving, after]))


def _prices(
    work: Sequence[Work], counts: Floats, edges: Floats, time_limit_s: float
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


def _ascend(work: Sequence[Work], counts: Floats, edges: Floats, prices: Floats) -> float:
    """Return the best bound of prices that follow demand.

    Steps follow a moving average of the excess demand, by its usual size in each slot (Adam), and
    shrink. Every round's prices are valid, so the best of them counts.
    """
    room = np.outer(counts, np.diff(edges))
    rounds = int(np.clip(_LOOKS // len(work), *_ROUNDS))
    unit = float(prices[prices > 0].mean()) if prices.any() else 1.0 / float(counts.sum())
    trend, size, best = np.zeros_like(prices), np.zeros_like(prices), 0.0
    for number in range(rounds):
        paid, used = 0.0, np.zeros_like(prices)
        for one in work:
            pays, use = least(one, edges, prices)
            paid, used = paid + one.late_s + pays, used + use
        value = (paid - float((prices * room).sum())) / len(work)
        best = max(best, value)
        excess = used / room - 1.0
        trend = _INERTIA * trend + (1 - _INERTIA) * excess
        size += 0.05 * (excess**2 - size)
        usual = np.sqrt(size / (1 - 0.95 ** (number + 1))) + 0.05
        step = unit * _STEP * (1 - number / rounds) ** 1.5
        prices = np.maximum(prices + step * trend / usual, 0.0)
    return best
