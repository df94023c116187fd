"""One scheduling cycle: a pure function from a queue and a cluster to decisions."""

from collections.abc import Sequence

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
from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.ids import JobId


def cycle(
    queue: Sequence[QueuedJob],
    snapshot: Snapshot,
    now_ms: int,
    policy: Strategy,
    running: Sequence[RunningJob] = (),
) -> list[Decision]:
    """Decide for every waiting job, in the policy's order. ``snapshot`` is left as it was.

    Deterministic: the same arguments always give the same decisions. The service, the simulator
    and the benchmarks all call this function. Under a strict policy the first job that could run
    but finds no devices blocks the rest; one that backs off or has no plan blocks nobody.
    An ``Allocator`` also sees the ``running`` jobs; a preemptive one may stop and move them.
    """
    after = snapshot.copy()
    if isinstance(policy, Allocator):
        eligible = [job for job in queue if job.plans and job.not_before_ms <= now_ms]
        view = View(queue=eligible, running=running, snapshot=after, now_ms=now_ms)
        return carry_out(policy.allocate(view), queue, view, preemptive=policy.preemptive)
    return _one_by_one(queue, after, now_ms, policy)


def _one_by_one(
    queue: Sequence[QueuedJob], after: Snapshot, now_ms: int, policy: Policy
) -> list[Decision]:
    decisions: list[Decision] = []
    position = 0
    head: JobId | None = None
    idle, strict = after.idle_by_kind, policy.strict
    for job in policy.order(queue):
        eligible = job.not_before_ms <= now_ms and bool(job.plans)
        decision = _try(job, after, policy) if eligible and idle and head is None else None
        if decision is None:
            position += 1
            decisions.append(Hold(job=job, position=position, after=after, behind=head))
            if strict and eligible and head is None:
                head = job.id
        else:
            decisions.append(decision)
    return decisions


def _try(job: QueuedJob, snapshot: Snapshot, policy: Policy) -> Place | None:
    placement = policy.place(job, snapshot)
    if placement is None:
        return None
    statement = Statement(snapshot)
    if not statement.allocate(placement.kind, placement.devices):
        raise AssertionError(f"policy {policy.name} chose devices that are not idle: {placement}")
    statement.commit()
    return Place(job=job.id, version=job.version, placement=placement)
