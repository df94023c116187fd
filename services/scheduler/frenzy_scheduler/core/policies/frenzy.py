"""Frenzy's own policy: elastic, preemptive, remaining time first by marginal gain.

MARP predicts the speed of every plan and the specification gives the steps, so what is left of a
job is known for each of its plans. Devices are handed out one step at a time, always where they
buy most: a start, or a wider or faster plan for a job that has one. The gain of a plan is the
job's weight times (seconds left) ** -power; its cost is its devices at the price of their kind.

A job's weight grows with its priority and with what its project lacks of its fair share. With
quotas devices are handed out twice: to owners from their shares, then to everybody.

Nothing is changed without need. A waiting job is charged with a start, a running job's other plans
with the restart and with ``hysteresis``. Nobody takes a job's devices until it has had them for
``min_run_factor`` times the price of a restart; meanwhile it may well go on to better ones that are
free. Weight grows with age, so that nobody starves. Why these numbers:
docs/explanation/policies.md.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frenzy_scheduler.core.admission import Ledger, Round
from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.walk import capacity, released
from frenzy_scheduler.core.reach import owe
from frenzy_scheduler.core.urgency import weight
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan

Job = QueuedJob | RunningJob
Plans = tuple[ResourcePlan, ...]

_LEAST_PRICE: Final = 0.02  # of a kind that hardly any job can use
_LEAST_EXTRA: Final = 0.1  # share of a plan's cost that a faster plan costs at least on top
_LEAST_LEFT_S: Final = 1.0
_NEVER: Final = float("inf")
_UNKNOWN_DEVICE_S: Final = 600.0  # left of a job of unknown length that has had nothing yet


@dataclass(frozen=True, slots=True)
class Frenzy:
    """Give devices to the jobs and plans in which they shorten completion times most."""

    name: str = "frenzy"
    preemptive: bool = True
    power: float = 1.3
    hysteresis: float = 1.4
    restart_factor: float = 1.5
    min_run_factor: float = 20.0
    ageing_s: float = 8 * 3600.0

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Return the plan of each job that should run: those that get on first, then by width.

        A running job that goes to a faster plan comes before whoever gets its devices.
        """
        chosen: dict[JobId, ResourcePlan] = {}
        contested: list[RunningJob] = []
        safe: list[RunningJob] = []
        for job in view.running:
            if self._contested(job, view.now_ms):
                contested.append(job)
            elif job.plan is not None:
                chosen[job.id] = job.plan
                safe += [job] if job.preemptible and _counted(job, view) else []
        free = capacity(view.snapshot, contested)
        jobs: list[Job] = [*view.queue, *contested, *safe]
        bids = self._bids(jobs, chosen, view)
        ledger = released(view.ledger, contested)
        for turn in ledger.rounds:
            _hand_out(bids, free, chosen, ledger, turn)
            if turn is Round.OWN:
                owe(ledger, (job for job in view.queue if job.id not in chosen), view.snapshot)
        _keep_within_limits(bids, free, chosen, ledger)
        return _in_order(chosen, view.running)

    def eager(self, view: View) -> tuple[list[JobId], list[JobId]]:
        """Return waiting and running jobs by what devices could be worth to them, most first."""
        running = {
            job.id: job.plan
            for job in view.running
            if job.changeable and job.plan is not None and _counted(job, view)
        }
        waiting = (job for job in view.queue if job.eligible(view.now_ms))
        jobs: list[Job] = [*waiting, *(job for job in view.running if job.id in running)]
        bids = sorted(self._bids(jobs, running, view), key=lambda bid: -bid.gain)
        names = [bid.job.id for bid in bids if bid.gain > 0]
        return [name for name in names if name not in running], [
            name for name in names if name in running
        ]

    def _bids(
        self, jobs: list[Job], held: Mapping[JobId, ResourcePlan], view: View
    ) -> "list[_Bid]":
        """Return the jobs' bids, in order of arrival; who is sure of a plan bids for better."""
        jobs.sort(key=lambda job: (job.sequence, job.id))
        prices = kind_prices(jobs)
        menus = {id(plans): _Menu(plans, prices, -self.power) for plans in _distinct(jobs)}
        bids = [self._bid(job, menus[id(job.plans)], view) for job in jobs]
        for bid in bids:
            if bid.job.id in held:
                bid.hold(held[bid.job.id])
        return bids

    def _contested(self, job: RunningJob, now_ms: int) -> bool:
        """Tell whether others may get a job's devices: not so soon after it got them."""
        least_s = self.min_run_factor * job.progress.restart_s
        return job.changeable and now_ms - job.placed_ms >= least_s * 1000

    def _bid(self, job: Job, menu: "_Menu", view: View) -> "_Bid":
        """Value a job's plans by the time that it would need with each, from now on."""
        urgency = weight(job.priority, job.standing)
        urgency *= 1.0 + max(view.now_ms - job.progress.arrived_ms, 0) / 1000 / self.ageing_s
        steps = job.progress.steps_left
        steps = _guess(job) if steps is None else steps
        if isinstance(job, QueuedJob):
            return _Bid(job, menu, _Worth(urgency, steps, job.progress.restart_s, -self.power))
        values = [
            urgency * max(self._left_s(job, plan, steps), _LEAST_LEFT_S) ** -self.power
            for plan in job.plans
        ]
        return _Bid(job, menu, values=values)

    def _left_s(self, job: RunningJob, plan: ResourcePlan, steps: float) -> float:
        """Return the seconds left with a plan; those of a change are charged for it.

        Also a move beside training is charged a restart: the job itself loses less by it, but its
        new devices are as long without work. Charging less made completion times longer.
        """
        left_s = steps * plan.speed.step_s
        if plan.id == job.placement.plan:
            return left_s
        return left_s * self.hysteresis + job.progress.restart_s * self.restart_factor


def kind_prices(jobs: Sequence[Job]) -> dict[str, float]:
    """Return what a device of each kind is worth to these jobs, the best kind near 1.

    A job values a kind by its work per device there, relative to its best kind: nothing where it
    cannot run. Jobs count alike, so a kind that only few can use, or use well, is cheap.
    """
    alike = Counter(id(job.plans) for job in jobs)
    worth: dict[str, float] = {}
    for plans in _distinct(jobs):
        least: dict[str, float] = {}
        for plan in plans:
            device_s = plan.device_count * plan.speed.step_s
            if device_s < least.get(plan.kind, _NEVER):
                least[plan.kind] = device_s
        best, count = min(least.values(), default=0.0), alike[id(plans)]
        for kind, device_s in least.items():
            worth[kind] = worth.get(kind, 0.0) + count * best / device_s
    return {kind: max(total / len(jobs), _LEAST_PRICE) for kind, total in worth.items()}


def _counted(job: RunningJob, view: View) -> bool:
    """Tell whether a job's devices could be handed out: not on nodes that get no work."""
    kind = job.placement.kind
    return all(view.snapshot.has_node(kind, node) for node in job.placement.nodes)


def _in_order(
    chosen: Mapping[JobId, ResourcePlan], running: Sequence[RunningJob]
) -> dict[JobId, ResourcePlan]:
    """Put running jobs that go to a faster plan first, and wide gangs before narrow ones."""
    faster = {
        job.id
        for job in running
        if (target := chosen.get(job.id)) is not None
        and target.id != job.placement.plan
        and job.plan is not None
        and target.speed.step_s < job.plan.speed.step_s
    }
    order = sorted(chosen.items(), key=lambda one: (one[0] not in faster, -one[1].device_count))
    return dict(order)


def _distinct(jobs: Sequence[Job]) -> Collection[Plans]:
    """Return the jobs' sets of plans, those that alike jobs share only once."""
    return {id(job.plans): job.plans for job in jobs}.values()


class _Menu:
    """What a set of plans costs, and what its plans are worth per step left to a job of weight 1.

    Jobs with the same plans share it, so that a long queue costs little more than its length.
    """

    __slots__ = ("best", "cheapest", "costs", "fastest_s", "steps_s")

    def __init__(self, plans: Plans, prices: Mapping[str, float], power: float) -> None:
        self.steps_s = [plan.speed.step_s for plan in plans]
        self.costs = [plan.device_count * prices[plan.kind] for plan in plans]
        pairs = zip(self.steps_s, self.costs, strict=True)
        self.best = max(float(step_s**power) / cost for step_s, cost in pairs)
        self.fastest_s, self.cheapest = min(self.steps_s), min(self.costs)


@dataclass(frozen=True, slots=True)
class _Worth:
    """What a waiting job's plans are worth: weight times (start and seconds left) ** power."""

    urgency: float
    steps: float
    start_s: float
    power: float  # negative

    def values(self, menu: _Menu) -> list[float]:
        """Return the value of each plan."""
        return [self._of(step_s) for step_s in menu.steps_s]

    def most(self, menu: _Menu) -> float:
        """Return what no plan's gain is above, without looking at one by one."""
        ideal = self._of(menu.fastest_s) / menu.cheapest
        if not self.steps:
            return ideal
        return min(ideal, self.urgency * float(self.steps**self.power) * menu.best)

    def _of(self, step_s: float) -> float:
        seconds = max(self.start_s + self.steps * step_s, _LEAST_LEFT_S)
        return self.urgency * float(seconds**self.power)


class _Bid:
    """One job's plans, always with the one that gains most per additional cost on top.

    Most bids of a long queue never come up, so a waiting job's plans are looked at one by one
    only when its bid is ``open``; until then ``gain`` is what it cannot exceed.
    """

    __slots__ = (
        "_costs", "_gains", "_menu", "_number", "_plans", "_values", "_worth",
        "gain", "held", "job",
    )  # fmt: skip

    def __init__(
        self, job: Job, menu: _Menu, worth: _Worth | None = None, values: Sequence[float] = ()
    ) -> None:
        self.job = job
        self.held: ResourcePlan | None = None
        self._number = -1  # of the held plan
        self._plans, self._menu, self._costs = job.plans, menu, menu.costs
        self._worth, self._values = worth, values
        self.gain = 0.0  # of the plan on top; 0 when nothing is left
        if worth is None:
            self.renew()
        else:
            self.gain = worth.most(menu)

    def open(self) -> bool:
        """Look at the plans one by one; tell whether that was not done before."""
        if self._worth is None:
            return False
        self._values, self._worth = self._worth.values(self._menu), None
        self.renew()
        return True

    def hold(self, plan: ResourcePlan) -> None:
        """Bid only for what is better than a plan that the job has for certain."""
        self._number = self._plans.index(plan)
        self.held = plan
        self.renew()

    @property
    def top(self) -> ResourcePlan:
        """Return the plan on top."""
        return self._plans[self._gains.index(self.gain)]

    def grant(self) -> None:
        """Hold the plan on top; what is better still comes next, for what it costs more."""
        self._number = self._gains.index(self.gain)
        self.held = self._plans[self._number]
        self.renew()

    def renew(self) -> None:
        """Bid again for every plan that is better than the held one, whatever was refused."""
        if self.held is None:
            pairs = zip(self._values, self._costs, strict=True)
            self._gains = [value / cost for value, cost in pairs]
        else:
            value, cost = self._values[self._number], self._costs[self._number]
            least = cost * _LEAST_EXTRA
            self._gains = [
                (better - value) / max(dearer - cost, least) if better > value else 0.0
                for better, dearer in zip(self._values, self._costs, strict=True)
            ]
        self.gain = max(self._gains)

    def give_back(self) -> None:
        """Hold nothing again, and bid anew."""
        self.held, self._number = None, -1
        self.renew()

    def drop(self) -> None:
        """Forget the plan on top."""
        self._gains[self._gains.index(self.gain)] = 0.0
        self.gain = max(self._gains)

    def refuse(self, free: Mapping[str, int]) -> None:
        """Forget every plan for which not enough devices are free."""
        room = dict(free)
        if self.held is not None:
            room[self.held.kind] += self.held.device_count
        self._gains = [
            gain if plan.device_count <= room.get(plan.kind, 0) else 0.0
            for gain, plan in zip(self._gains, self._plans, strict=True)
        ]
        self.gain = max(self._gains)


def _hand_out(
    bids: Sequence[_Bid],
    free: dict[str, int],
    chosen: dict[JobId, ResourcePlan],
    ledger: Ledger,
    turn: Round,
) -> None:
    """Grant the best bid again and again, until nothing that is bid for is free."""
    for bid in bids if turn is not ledger.rounds[0] else ():
        if not bid.open():
            bid.renew()
    heap = [(-bid.gain, number) for number, bid in enumerate(bids) if bid.gain > 0]
    heapq.heapify(heap)
    unlimited = ledger.free_for_all
    while heap and any(free.values()):
        number = heap[0][1]
        bid = bids[number]
        if bid.open():
            heapq.heapreplace(heap, (-bid.gain, number))
            continue
        plan, held = bid.top, bid.held
        returned = held.device_count if held is not None and held.kind == plan.kind else 0
        if plan.device_count > free.get(plan.kind, 0) + returned:
            bid.refuse(free)
        elif unlimited or _permitted(bid, free, ledger, turn):
            if held is not None:
                free[held.kind] += held.device_count
            free[plan.kind] -= plan.device_count
            ledger.charge(bid.job.project, plan, held)
            bid.grant()
            chosen[bid.job.id] = plan
        else:
            bid.drop()
        if bid.gain > 0:
            heapq.heapreplace(heap, (-bid.gain, number))
        else:
            heapq.heappop(heap)


def _keep_within_limits(
    bids: Sequence[_Bid], free: dict[str, int], chosen: dict[JobId, ResourcePlan], ledger: Ledger
) -> None:
    """Offer less to waiting jobs whose project's running ones have kept what those were granted.

    A running job may keep its plan also where a waiting one was granted the project's limit
    before; that one could not start, although a smaller plan of its might, or another job.
    """
    over: set[str] = set()
    for bid in () if ledger.free_for_all else bids:
        held, project = bid.held, bid.job.project
        if held is None or isinstance(bid.job, RunningJob):
            continue
        left = free[held.kind] + held.device_count
        ledger.charge(project, None, held)
        if ledger.permits(project, held, Round.ANY, free=left):
            ledger.charge(project, held)
            continue
        free[held.kind] = left
        del chosen[bid.job.id]
        bid.give_back()
        over.add(project)
    waiting = (bid for bid in bids if bid.held is None and isinstance(bid.job, QueuedJob))
    again = [bid for bid in waiting if bid.job.project in over]
    _hand_out(again, free, chosen, ledger, Round.ANY)


def _permitted(bid: _Bid, free: Mapping[str, int], ledger: Ledger, turn: Round) -> bool:
    """Tell whether quotas allow the plan on top; what a job runs with it may always keep."""
    job, plan = bid.job, bid.top
    keeps = isinstance(job, RunningJob) and plan.id == job.placement.plan
    if keeps and turn is Round.ANY:
        return True
    left = free.get(plan.kind, 0)
    return ledger.permits(job.project, plan, turn, free=left, held=bid.held)


def _guess(job: Job) -> float:
    """Return steps for a job of unknown length: as much work again as it has had."""
    device_s = max(job.progress.attained_device_s, _UNKNOWN_DEVICE_S)
    return device_s / min(plan.device_count * plan.speed.step_s for plan in job.plans)
