"""Which of a job's plans can go on from what the job has trained; the others are refused, said why.

A plan change that the trainer cannot carry out must be refused before the job is stopped for it.
"""

from collections.abc import Sequence

from frenzy_shared.domain.continuation import (
    Elasticity,
    PlanShape,
    carries,
    script_carries,
    shape_of,
)
from frenzy_shared.domain.job import PLACED, JobRecord
from frenzy_shared.domain.plan import RefusedPlan, ResourcePlan
from frenzy_shared.messages.spec import JobSpec


def continuable(
    plans: Sequence[ResourcePlan], record: JobRecord, spec: JobSpec
) -> tuple[tuple[ResourcePlan, ...], tuple[RefusedPlan, ...]]:
    """Return the plans under which the job can go on, and those that it must not get."""
    former = _former(record, spec)
    if former is None:
        return tuple(plans), ()
    good = tuple(plan for plan in plans if _can(record, spec, former, shape_of(plan.parallelism)))
    kept = {plan.id for plan in good}
    bad = tuple(_refused(plan, former, record, spec) for plan in plans if plan.id not in kept)
    return good, bad


def may_be_stopped(record: JobRecord, spec: JobSpec, grace_s: float) -> bool:
    """Tell whether a job may be stopped for another one: it says so, or can be seen to resume.

    One whose last stop took the whole grace did not save in time: it is not asked again.
    """
    if spec.preemptible is not None:
        return spec.preemptible
    if record.save_ms is not None and record.save_ms >= grace_s * 1000:
        return False
    if spec.entrypoint is None:
        return spec.checkpoint.resume
    return spec.checkpoint.resume and record.checkpoint_step is not None


def _former(record: JobRecord, spec: JobSpec) -> PlanShape | None:
    """Return what the next attempt must go on from; None when it is free.

    A running job saves before it goes. A script binds its ranks from its first attempt on: what
    it keeps is not known here.
    """
    if record.state in PLACED or spec.entrypoint is not None:
        return record.shape
    saved = record.checkpoint_step is not None and spec.checkpoint.resume
    return record.checkpoint_shape if saved else None


def _can(record: JobRecord, spec: JobSpec, former: PlanShape, now: PlanShape) -> bool:
    if spec.entrypoint is None:
        return carries(former, now)
    elasticity = spec.elastic or Elasticity.FIXED
    return script_carries(former, now, elasticity, by_choice=record.state in PLACED)


def _refused(
    plan: ResourcePlan, former: PlanShape, record: JobRecord, spec: JobSpec
) -> RefusedPlan:
    saved = f"checkpoint of step {record.checkpoint_step}" if record.checkpoint_step else "run"
    option = f"{plan.device_count} x {plan.kind}, {shape_of(plan.parallelism)}"
    script = spec.entrypoint is not None
    how = f"; the script is elastic: {spec.elastic or Elasticity.FIXED}" if script else ""
    return RefusedPlan(
        kind=plan.kind,
        device_count=plan.device_count,
        option=option,
        reason=f"cannot go on from its {saved}, made under {former}{how}",
    )
