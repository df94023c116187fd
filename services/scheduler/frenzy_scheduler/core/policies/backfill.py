"""EASY backfilling: arrival order, a reservation for the head, and whoever does not delay it.

Source: Lifka, "The ANL/IBM SP Scheduling System" (1995). Ours: a job has several plans; the
head's reservation is for the plan that predictions let start first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View, seconds_left
from frenzy_scheduler.core.policies.has import best_fit, by_turn, plan_order
from frenzy_scheduler.core.reach import in_line, permitted
from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan


@dataclass(frozen=True, slots=True)
class Reservation:
    """From ``at_s`` seconds from now the head needs ``plan``; ``spare`` devices of it are left."""

    plan: ResourcePlan
    at_s: float
    spare: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """Arrival order; behind a head that waits, only jobs that leave its start where it is."""

    name: str = "backfill"
    preemptive: bool = False

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Start jobs in arrival order until one waits; then fill around its reservation."""
        chosen: dict[JobId, ResourcePlan] = {}
        ends = list(_ends(view.running, view.now_ms))
        snapshot = view.snapshot.copy()
        reservation: Reservation | None = None
        ledger = view.ledger.copy()
        for one, turn in in_line(by_turn(view.queue), chosen, ledger, snapshot):
            job = permitted(one, turn, ledger, snapshot, idle=False)
            plan = _first_harmless(job, snapshot, reservation)
            if plan is not None:
                chosen[job.id] = plan
                ledger.charge(job.project, plan)
                seconds = seconds_left(job.progress, plan)
                if reservation is None:
                    ends.append((plan.kind, seconds, plan.device_count))
                elif plan.kind == reservation.plan.kind and seconds > reservation.at_s:
                    reservation = _less(reservation, plan.device_count)
            elif reservation is None:
                reservation = reserve(job, snapshot.within(job.nodes), ends)
        return chosen


def reserve(
    job: QueuedJob, snapshot: Snapshot, ends: Sequence[tuple[str, float, int]]
) -> Reservation | None:
    """Return the earliest start that predicted ``ends`` (kind, seconds, devices) allow.

    None when no plan can ever start: more devices than exist, or held by jobs nobody knows.
    Counts devices, not nodes: a gang that must stay on one node may start later than promised.
    """
    found: list[Reservation] = []
    for plan in job.plans:
        idle, at_s = snapshot.idle(plan.kind), 0.0
        for _, seconds, devices in sorted(end for end in ends if end[0] == plan.kind):
            if idle >= plan.device_count:
                break
            idle, at_s = idle + devices, seconds
        if idle >= plan.device_count:
            found.append(Reservation(plan, at_s, idle - plan.device_count))
    return min(found, key=lambda one: (one.at_s, one.plan.speed.total_s), default=None)


def _ends(running: Sequence[RunningJob], now_ms: int) -> Iterator[tuple[str, float, int]]:
    for job in running:
        plan = job.plan
        if plan is not None:
            left_s = seconds_left(job.progress, plan)
            if job.progress.steps_left is None:
                left_s = max(left_s - (now_ms - job.placed_ms) / 1000, 0.0)
            yield plan.kind, left_s, plan.device_count


def _first_harmless(
    job: QueuedJob, snapshot: Snapshot, reservation: Reservation | None
) -> ResourcePlan | None:
    """Take devices for the first plan that fits and delays no reservation."""
    for plan in plan_order(job.plans, snapshot):
        if reservation is not None and not _harmless(job, plan, reservation):
            continue
        devices = best_fit(plan, snapshot.within(job.nodes))
        if devices:
            Statement(snapshot).allocate(plan.kind, devices)
            return plan
    return None


def _harmless(job: QueuedJob, plan: ResourcePlan, reservation: Reservation) -> bool:
    if plan.kind != reservation.plan.kind or plan.device_count <= reservation.spare:
        return True
    return seconds_left(job.progress, plan) <= reservation.at_s


def _less(reservation: Reservation, devices: int) -> Reservation:
    return Reservation(reservation.plan, reservation.at_s, reservation.spare - devices)
