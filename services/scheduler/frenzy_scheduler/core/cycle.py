"""One scheduling cycle: a pure function from a queue and a cluster to decisions."""

from collections.abc import Sequence

from frenzy_scheduler.core.admission import Ledger
from frenzy_scheduler.core.allocation import carry_out
from frenzy_scheduler.core.decisions import (
    Allocator,
    Decision,
    Hold,
    Place,
    Policy,
    QueuedJob,
    RunningJob,
    Strategy,
    View,
)
from frenzy_scheduler.core.policies.has import could_fit
from frenzy_scheduler.core.precedence import keeping_precedence
from frenzy_scheduler.core.reach import in_line, permitted, possible
from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.placement import Placement


def cycle(
    queue: Sequence[QueuedJob],
    snapshot: Snapshot,
    now_ms: int,
    policy: Strategy,
    running: Sequence[RunningJob] = (),
    *,
    ledger: Ledger | None = None,
) -> list[Decision]:
    """Decide for every waiting job, in the policy's order. ``snapshot`` is left as it was.

    Deterministic: the same arguments always give the same decisions. The service, the simulator
    and the benchmarks all call this function. Under a strict policy the first job that could run
    but finds no devices blocks the rest; one that backs off, is blocked, has no plan or is over
    its project's quota blocks nobody.
    An ``Allocator`` also sees the ``running`` jobs; a preemptive one may stop and move them.
    ``ledger`` has the projects' quotas and what their jobs hold; it is left as it was too.
    """
    after = snapshot.copy()
    quotas = Ledger() if ledger is None else ledger.copy()
    if isinstance(policy, Allocator):
        narrowed = (possible(job, snapshot, running) for job in queue if job.eligible(now_ms))
        eligible = [job for job in narrowed if job.plans]
        view = View(queue=eligible, running=running, snapshot=after, now_ms=now_ms, ledger=quotas)
        return carry_out(
            keeping_precedence(policy, view), queue, view, preemptive=policy.preemptive
        )
    return _OneByOne(policy, after, quotas).decide(queue, now_ms)


def give_devices(
    policy: Policy, job: QueuedJob, snapshot: Snapshot, statement: Statement
) -> Placement | None:
    """Let a policy place one job and take the devices through ``statement``; None: it waits."""
    placement = policy.place(job, snapshot.within(job.nodes))
    if placement is not None and not statement.allocate(placement.kind, placement.devices):
        raise AssertionError(f"policy {policy.name} chose devices that are not idle: {placement}")
    return placement


class _OneByOne:
    """Place one job after the other; running jobs are left alone."""

    def __init__(self, policy: Policy, after: Snapshot, ledger: Ledger) -> None:
        self._policy, self._after, self._ledger = policy, after, ledger
        self._places: dict[JobId, Place] = {}
        self._behind: dict[JobId, JobId] = {}

    def decide(self, queue: Sequence[QueuedJob], now_ms: int) -> list[Decision]:
        ordered = sorted(queue, key=self._policy.rank)
        self._hand_out([job for job in ordered if job.eligible(now_ms)])
        decisions: list[Decision] = []
        position = 0
        for job in ordered:
            place = self._places.get(job.id)
            if place is None:
                position += 1
            decisions.append(place or self._hold(job, position))
        return decisions

    def _hand_out(self, eligible: Sequence[QueuedJob]) -> None:
        head: JobId | None = None
        idle, strict = self._after.idle_by_kind, self._policy.strict
        for job, turn in in_line(eligible, self._places, self._ledger, self._after):
            if head is not None:
                self._behind[job.id] = head
            elif not idle and not strict:
                return
            elif strict or self._ledger.free_for_all or could_fit(job.plans, self._after):
                allowed = permitted(job, turn, self._ledger, self._after, idle=not strict)
                if allowed.plans and not self._try(allowed) and strict:
                    head = job.id

    def _try(self, job: QueuedJob) -> bool:
        placement = give_devices(self._policy, job, self._after, Statement(self._after))
        if placement is None:
            return False
        if not self._ledger.free_for_all:
            plan = next(plan for plan in job.plans if plan.id == placement.plan)
            self._ledger.charge(job.project, plan)
        self._places[job.id] = Place(job=job.id, version=job.version, placement=placement)
        return True

    def _hold(self, job: QueuedJob, position: int) -> Hold:
        return Hold(
            job=job,
            position=position,
            after=self._after,
            ledger=self._ledger,
            behind=self._behind.get(job.id),
        )
