"""Learn from an attempt that ran out of memory: how much more the next plan must reckon with."""

from typing import Final

from frenzy_marp.core.memory.estimate import CORRECTION_TERM, uncorrected
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.job import JobRecord, StopReason
from frenzy_shared.domain.plan import PlanSet, ResourcePlan

MAX_CORRECTION: Final = 4.0  # that one observed peak may bring about
_BEYOND: Final = 1.05  # the failed allocation itself is not in any observed peak


def applied(plan: ResourcePlan) -> float:
    """Return the factor on predicted memory that a plan was made with, whoever demanded it."""
    return plan.memory.allocated.expected / uncorrected(plan.memory)


def corrected(record: JobRecord, plans: PlanSet | None, kinds: tuple[KindSummary, ...]) -> float:
    """Return the least factor on predicted memory for a job's next plans; 0: nothing demands one.

    After an out-of-memory the plan that ran never fits its device again, however far off it was:
    the run needed more than the device had, and at least what was observed.
    """
    if plans is None or not plans.plans:
        return 0.0
    ran = plan_that_ran(record, plans)
    if ran is None or not _ran_out(record):
        return _demanded(plans.plans[0])
    capacity = next((k.memory_bytes for k in kinds if k.kind == ran.kind), 0)
    observed = max((o.peak_allocated_bytes or 0 for o in record.outcomes), default=0)
    excluding = capacity / ran.memory.required.high
    learned = min(MAX_CORRECTION, observed / ran.memory.allocated.expected)
    return applied(ran) * _BEYOND * max(excluding, learned, 1.0)


def plan_that_ran(record: JobRecord, plans: PlanSet) -> ResourcePlan | None:
    """Return the plan of a job's present placement, None when it is not among ``plans``."""
    if record.placement is None:
        return None
    return next((plan for plan in plans.plans if plan.id == record.placement.plan), None)


def _demanded(plan: ResourcePlan) -> float:
    """Return the part of a plan's factor that stays with its job; what others taught may change."""
    own = any(term.name == CORRECTION_TERM for term in plan.memory.terms)
    return applied(plan) if own else 0.0


def _ran_out(record: JobRecord) -> bool:
    return any(o.reason is StopReason.CUDA_OUT_OF_MEMORY for o in record.outcomes)
