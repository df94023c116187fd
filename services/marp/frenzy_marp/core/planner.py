"""Make plans: every way to run a job on the kinds that a cluster has, best first.

Exhaustive where it matters, pruned where memory is monotone: more sequences in a micro-batch
never need less, and a higher ZeRO stage or checkpointing is not worth its price once a cheaper
option fits a device's share in a few micro-steps. The global batch is always kept exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from frenzy_marp.core.candidates import (
    Option,
    gpu_model,
    options,
    parallelism,
    precision_of,
)
from frenzy_marp.core.deepspeed_config import bucket_elements, deepspeed_config
from frenzy_marp.core.memory.analytical import Peak, floor_bytes, predict_peak
from frenzy_marp.core.memory.estimate import DeviceTraits, estimate, required_bytes
from frenzy_marp.core.refusals import (
    excluded,
    missing_kinds,
    no_precision,
    no_split,
    relaxations,
    too_large,
    unsupported_degrees,
)
from frenzy_marp.core.speed import estimate_speed
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary, kinds_digest
from frenzy_shared.domain.ids import PlanId
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    MemoryEstimate,
    ParallelismPlan,
    PlanSet,
    RefusedPlan,
    ResourcePlan,
    SpeedEstimate,
)
from frenzy_shared.units import format_bytes

MAX_PLANS: Final = 32
_FEW_MICRO_STEPS: Final = 4  # a larger micro-batch than this leaves cannot repay its price


@dataclass(frozen=True, slots=True)
class _Context:
    """One kind under one set of pins."""

    setup: TrainingSetup
    kind: KindSummary
    gpu: GpuModel
    pins: Pins
    correction: float
    peaks: dict[tuple[ParallelismPlan, bool], Peak]  # kinds share what they have in common

    @property
    def emulated(self) -> bool:
        return self.kind.emulated or self.gpu.emulated

    def peak(self, plan: ParallelismPlan) -> Peak:
        key = (plan, self.emulated)
        found = self.peaks.get(key)
        if found is None:
            found = self.peaks[key] = predict_peak(
                self.setup.model,
                self.setup.attention,
                self.setup.sequence_length,
                plan,
                cuda=not self.emulated,
            )
        return found

    def fits(self, plan: ParallelismPlan) -> bool:
        """Tell whether a plan fits; the many that cannot are told apart cheaply."""
        return self.at_least(plan) <= self.kind.memory_bytes >= self.required(plan)

    def at_least(self, plan: ParallelismPlan) -> int:
        floor = floor_bytes(self.setup.model, self.setup.sequence_length, plan)
        return round(floor * self.correction)

    def required(self, plan: ParallelismPlan) -> int:
        return required_bytes(
            self.peak(plan).allocated, self.traits(plan), correction=self.correction
        )

    def memory(self, plan: ParallelismPlan) -> MemoryEstimate:
        return estimate(self.peak(plan), self.traits(plan), correction=self.correction)

    def traits(self, plan: ParallelismPlan) -> DeviceTraits:
        return DeviceTraits(
            emulated=self.emulated,
            compute_capability=self.kind.compute_capability,
            ranks=plan.world_size,
        )


def plan_job(
    setup: TrainingSetup, kinds: Sequence[KindSummary], *, correction: float = 1.0
) -> PlanSet:
    """Return ranked plans for the kinds of a cluster, and what was refused and why.

    Ranked by predicted time to finish, then device-hours: the scheduler, which knows what is
    free, weighs devices. A plan that is slower than one of the same kind with fewer devices is
    left out. ``correction`` multiplies predicted memory (learned from an earlier attempt).
    """
    present = tuple(kinds)
    digest = kinds_digest(present)
    refused = [*unsupported_degrees(setup.pins), *missing_kinds(present, setup.pins)]
    plans: list[ResourcePlan] = []
    peaks: dict[tuple[ParallelismPlan, bool], Peak] = {}
    if not unsupported_degrees(setup.pins):
        for kind in present:
            found = _plan_kind(
                _Context(setup, kind, gpu_model(kind), setup.pins, correction, peaks)
            )
            if isinstance(found, RefusedPlan):
                refused.append(found)
            else:
                plans.extend(found)
    ranked = _rank(plans)
    return PlanSet(
        plans=ranked,
        refused=tuple(refused),
        kinds_digest=digest,
        message="" if ranked else _summary(refused, present),
    )


def _plan_kind(context: _Context) -> list[ResourcePlan] | RefusedPlan:
    kind, pins = context.kind, context.pins
    left_out = excluded(kind, pins)
    if left_out is not None:
        return left_out
    if precision_of(context.gpu, pins) is None:
        return no_precision(kind, pins)
    fitting, nearest = _search(context)
    if fitting:
        return [_resource_plan(context, plan, speed) for plan, speed in _front(context, fitting)]
    if nearest is None:
        return no_split(context.setup, kind, pins)
    return too_large(kind, nearest, context.memory(nearest), _culprit(context))


def _search(context: _Context) -> tuple[list[ParallelismPlan], ParallelismPlan | None]:
    """Return the fitting options with their largest micro-batch, and the nearest miss."""
    precision = precision_of(context.gpu, context.pins)
    fitting: list[ParallelismPlan] = []
    misses: list[ParallelismPlan] = []
    settled = 0  # the device count for which a cheaper option is good enough
    if precision is None:
        return [], None
    for option in options(context.setup, context.kind, context.pins, precision):
        if option.devices == settled:
            continue
        fit, miss = _largest_fit(context, option)
        if fit is not None:
            fitting.append(fit)
            if fit.gradient_accumulation_steps <= _FEW_MICRO_STEPS and _unchecked(fit):
                settled = option.devices
        elif miss is not None:
            misses.append(miss)
    return fitting, min(misses, key=context.at_least, default=None)


def _largest_fit(
    context: _Context, option: Option
) -> tuple[ParallelismPlan | None, ParallelismPlan | None]:
    """Bisect the micro-batches; return the largest that fits, else the smallest, which does not."""
    low, high = 0, len(option.micro_batches)  # fits below low, does not fit from high on
    fit = miss = None
    middle = high - 1  # most often everything fits
    bucket = bucket_elements(context.setup.model)
    while low < high:
        plan = parallelism(context.setup, option, option.micro_batches[middle], bucket)
        if context.fits(plan):
            fit, low = plan, middle + 1
        else:
            miss, high = plan, middle
        middle = (low + high) // 2
    return fit, miss


def _unchecked(plan: ParallelismPlan) -> bool:
    return plan.activation_checkpointing is ActivationCheckpointing.NONE


def _culprit(context: _Context) -> str:
    """Return the name of a pin without which something would fit, "" when there is none.

    When only several together are to blame, all that are set are named.
    """
    names: list[str] = []
    loosest = context.pins
    for name, relaxed in relaxations(context.pins):
        if _search(replace(context, pins=relaxed))[0]:
            return name
        names.append(name)
    for _ in names:
        loosest = next(relaxed for _, relaxed in relaxations(loosest))
    together = len(names) > 1 and _search(replace(context, pins=loosest))[0]
    return ", ".join(names) if together else ""


def _resource_plan(context: _Context, plan: ParallelismPlan, speed: SpeedEstimate) -> ResourcePlan:
    kind = context.kind
    # Nothing overlaps with gathering on a CPU: looking ahead would only cost memory.
    prefetch = 0 if context.emulated else plan.reduce_bucket_elements
    identity = (
        f"{kind.kind}-{plan.data}-z{plan.zero_stage}-m{plan.micro_batch_size}"
        f"-{plan.precision}-{plan.activation_checkpointing}"
    )
    return ResourcePlan(
        id=PlanId("".join(c if c.isalnum() else "-" for c in identity.lower())),
        kind=kind.kind,
        device_count=plan.data,
        single_node=False,
        parallelism=plan,
        memory=context.memory(plan),
        speed=speed,
        deepspeed_config=deepspeed_config(context.setup, plan, prefetch=prefetch),
        environment={} if context.emulated else _CUDA_ENVIRONMENT,
    )


_CUDA_ENVIRONMENT: Final = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def _front(
    context: _Context, plans: list[ParallelismPlan]
) -> list[tuple[ParallelismPlan, SpeedEstimate]]:
    """Keep, of one kind, the fastest plan per device count that beats every smaller one."""
    timed = [
        (plan, estimate_speed(context.setup, plan, context.kind, context.gpu)) for plan in plans
    ]
    timed.sort(key=lambda item: (item[0].world_size, item[1].total_s))
    kept: list[tuple[ParallelismPlan, SpeedEstimate]] = []
    for plan, speed in timed:
        if not kept or speed.total_s < kept[-1][1].total_s:
            kept.append((plan, speed))
    return kept


def _rank(plans: list[ResourcePlan]) -> tuple[ResourcePlan, ...]:
    """Order plans and cut them to ``MAX_PLANS``, keeping the best of every kind."""
    ordered = sorted(plans, key=lambda p: (p.speed.total_s, p.speed.device_hours, p.id))
    first_of_kind = {plan.kind: plan for plan in reversed(ordered)}
    smallest_of_kind = {plan.kind: plan for plan in sorted(plans, key=lambda p: -p.device_count)}
    must = {plan.id for plan in (*first_of_kind.values(), *smallest_of_kind.values())}
    room = MAX_PLANS - len(must)
    kept: list[ResourcePlan] = []
    for plan in ordered:
        if plan.id in must:
            kept.append(plan)
        elif room > 0:
            kept.append(plan)
            room -= 1
    return tuple(_explained(plan, kept[0]) for plan in kept)


def _explained(plan: ResourcePlan, best: ResourcePlan) -> ResourcePlan:
    if plan is best:
        why = f"fastest: {plan.speed.total_s:.0f} s, {plan.speed.tokens_per_s:.0f} tokens/s"
    else:
        slower = plan.speed.total_s / best.speed.total_s
        hours = plan.speed.device_hours / best.speed.device_hours
        why = f"{slower:.2f} times the time of the fastest, {hours:.2f} times its device-hours"
    return replace(plan, why=why)


def _summary(refused: list[RefusedPlan], kinds: tuple[KindSummary, ...]) -> str:
    if not kinds:
        return "the cluster has no devices"
    pinned = [item for item in refused if item.pin]
    nearest = min(
        (item for item in refused if item.shortfall_bytes > 0),
        key=lambda item: item.shortfall_bytes,
        default=None,
    )
    if nearest is not None:
        pins = dict.fromkeys(item.pin for item in pinned)
        blamed = f" within the pins ({', '.join(pins)})" if pins else ""
        return (
            f"no plan fits{blamed}: the closest, {nearest.option}, is short of "
            f"{format_bytes(nearest.shortfall_bytes)}: {nearest.reason}"
        )
    if pinned:
        return f"no plan is allowed by {pinned[0].pin}: {pinned[0].option}: {pinned[0].reason}"
    return "no plan fits"
