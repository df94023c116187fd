"""Why a job waits: one dominant reason, a sentence with numbers, and the nearest miss."""

from dataclasses import dataclass
from datetime import UTC, datetime

from frenzy_scheduler.core.decisions import Hold, QueuedJob
from frenzy_scheduler.core.policies.has import best_fit
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.job import PendingReason
from frenzy_shared.domain.placement import Unplaceable
from frenzy_shared.domain.plan import RefusedPlan, ResourcePlan


@dataclass(frozen=True, slots=True)
class _Miss:
    """How far the cluster is from one plan. ``missing`` counts devices."""

    plan: ResourcePlan
    reason: PendingReason
    missing: int
    text: str


def explain(hold: Hold, now_ms: int) -> Unplaceable:
    """Return the first reason that holds, in ``PendingReason``'s order."""
    return _whatever_is_idle(hold, now_ms) or _for_devices(hold)


def _whatever_is_idle(hold: Hold, now_ms: int) -> Unplaceable | None:
    """Return a reason that no idle device would change."""
    job = hold.job
    if not job.plans:
        return _no_plan(job)
    if exceeded := hold.ledger.exceeded(job.project, job.plans):
        return _because(PendingReason.QUOTA_EXCEEDED, exceeded)
    if job.blocked is not None:
        return job.blocked
    if job.not_before_ms > now_ms:
        until = datetime.fromtimestamp(job.not_before_ms / 1000, UTC)
        why = f"the next attempt is not before {until:%H:%M:%S} UTC"
        text = f"{why}; {job.message}" if job.message else why
        return _because(PendingReason.BACKOFF_AFTER_FAILURE, text)
    return None


def _for_devices(hold: Hold) -> Unplaceable:
    job = hold.job
    there = hold.after.within(job.nodes)
    where = "" if job.nodes is None else f" on the {len(job.nodes)} nodes that it may use"
    plans = [plan for plan in job.plans if hold.ledger.fits(job.project, plan)]
    misses = [_miss(plan, there, where) for plan in plans]
    nearest = min(misses, key=lambda miss: (_order(miss.reason), miss.missing))
    if hold.behind is not None:
        text = f"strict arrival order: job {hold.behind} comes first"
        return _because(PendingReason.WAITING_FOR_CAPACITY, text, nearest.text)
    kept = (hold.ledger.kept(job.project, p, there.idle(p.kind)) for p in plans)
    if for_owners := next(filter(None, kept), ""):
        return _because(PendingReason.WAITING_FOR_CAPACITY, for_owners, nearest.text)
    if hold.reserved_for is not None and any(best_fit(plan, there) for plan in plans):
        text = f"starting now would delay job {hold.reserved_for}, which came first"
        return _because(PendingReason.WAITING_FOR_CAPACITY, text, nearest.text)
    reason = _dominant(misses)
    text = next(miss.text for miss in misses if miss.reason is reason)
    others = len(plans) - 1
    more = f"; none of {others} other plan{'s' if others > 1 else ''} fits either" if others else ""
    return _because(reason, text + more, nearest.text)


def _no_plan(job: QueuedJob) -> Unplaceable:
    if not job.refused:
        text = job.message or "no plan fits any device of this cluster"
        return _because(PendingReason.NO_FEASIBLE_PLAN, text)
    closest = min(job.refused, key=lambda refused: refused.shortfall_bytes or float("inf"))
    count = len(job.refused)
    text = f"none of {count} option{'s' if count > 1 else ''} fits this cluster's devices"
    return _because(PendingReason.NO_FEASIBLE_PLAN, text, _refusal(closest))


def _refusal(refused: RefusedPlan) -> str:
    pin = f" (pinned by {refused.pin})" if refused.pin else ""
    return f"{refused.option}: {refused.reason}{pin}"


def _miss(plan: ResourcePlan, snapshot: Snapshot, pinned: str) -> _Miss:
    """Measure one plan; ``pinned`` says that the snapshot has not all nodes."""
    need, kind = plan.device_count, plan.kind
    total, idle = snapshot.total(kind), snapshot.idle(kind)
    where = " on one node" if plan.single_node else ""
    wants = f"plan {plan.id} needs {need} x {kind}{where}"
    most = snapshot.most_for(plan)
    if most < need:
        have = (
            f"the nodes that it may use have {most}" if pinned else f"nodes that are up have {most}"
        )
        text = f"{wants}; {have}{where}"
        return _Miss(plan, PendingReason.WAITING_FOR_NODES, need - most, text)
    if plan.single_node and idle >= need:
        best = snapshot.most_idle(kind)
        text = f"{wants}; {idle} are idle, but at most {best} on one node"
        return _Miss(plan, PendingReason.CAPACITY_FRAGMENTED, need - best, text)
    text = f"{wants}; {idle} of {total}{pinned} are idle"
    reachable = snapshot.most_idle(kind) if plan.single_node else idle
    return _Miss(plan, PendingReason.WAITING_FOR_CAPACITY, max(need - reachable, 0), text)


def _dominant(misses: list[_Miss]) -> PendingReason:
    """Return the reason of the plan that could start soonest.

    Missing nodes explain a wait only when every plan lacks them; fragmentation, being about
    devices that are idle right now, explains it better than devices in use.
    """
    reasons = {miss.reason for miss in misses}
    if reasons == {PendingReason.WAITING_FOR_NODES}:
        return PendingReason.WAITING_FOR_NODES
    if PendingReason.CAPACITY_FRAGMENTED in reasons:
        return PendingReason.CAPACITY_FRAGMENTED
    return PendingReason.WAITING_FOR_CAPACITY


def _order(reason: PendingReason) -> int:
    """Return how far away a start is: nodes that do not exist are farther than any device."""
    return 1 if reason is PendingReason.WAITING_FOR_NODES else 0


def _because(reason: PendingReason, message: str, nearest: str = "") -> Unplaceable:
    return Unplaceable(reason=reason.value, message=message, nearest=nearest)
