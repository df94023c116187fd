"""Make plans: every way to run a job on the kinds that a cluster has, best first.

The global batch is always kept exactly. Of one kind and number of devices the fastest plan that
fits is kept, and only if it is faster than every plan with fewer devices. Plans are ranked by
predicted time to finish, then device-hours: how many devices are worth it now is for the
scheduler to say, which knows what is free. Between equals the plan that shards and recomputes
less comes first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from frenzy_marp.core.candidates import gpu_model, precision_of
from frenzy_marp.core.deepspeed_config import deepspeed_config
from frenzy_marp.core.host import shortage
from frenzy_marp.core.ladder import Demand, Ladder
from frenzy_marp.core.learning import Experience, Lessons
from frenzy_marp.core.learning_runs import Framework
from frenzy_marp.core.memory.analytical import predict_peak
from frenzy_marp.core.memory.estimate import estimate, oom_probability
from frenzy_marp.core.memory.predictor import Peak
from frenzy_marp.core.refusals import (
    excluded,
    missing_kinds,
    no_precision,
    no_room,
    no_split,
    pinned,
    relaxations,
    too_large,
    unsupported_degrees,
)
from frenzy_marp.core.search import Choice, Offer, fits_at_all, front, nearest_miss
from frenzy_marp.core.speed import NOMINAL_STEPS, estimate_speed
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary, kinds_digest
from frenzy_shared.domain.ids import PlanId
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import (
    HostEstimate,
    Loss,
    Offload,
    ParallelismPlan,
    PlanSet,
    RefusedPlan,
    ResourcePlan,
)
from frenzy_shared.units import format_bytes

MAX_PLANS: Final = 32
NO_EXPERIENCE: Final = Experience()
_NOT_ALPHANUMERIC: Final = re.compile(r"[\W_]")
_CUDA_ENVIRONMENT: Final = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan that fits, in short: most are never written out."""

    offer: Offer
    choice: Choice

    @property
    def key(self) -> tuple[str, int]:
        """Return what tells it apart: a kind has one plan for a number of devices."""
        return self.offer.kind.kind, self.choice.devices

    @property
    def order(self) -> tuple[float, float, str]:
        choice = self.choice
        return choice.total_s, choice.devices * choice.total_s, self.offer.kind.kind


@dataclass(frozen=True)
class _Question:
    """A job, the kinds that are present, and its demands by the pins they were made under."""

    setup: TrainingSetup
    kinds: tuple[KindSummary, ...]
    lessons: Lessons
    demanded: float
    _demands: dict[Pins, Demand] = field(default_factory=dict[Pins, Demand])

    def offer(self, kind: KindSummary, gpu: GpuModel, pins: Pins) -> Offer | None:
        """Return a kind as the job sees it; None when the pinned precision cannot be had."""
        precision = precision_of(gpu, pins)
        if precision is None:
            return None
        return Offer(self._demand(pins), kind, gpu, precision, self.lessons, self.demanded)

    def _demand(self, pins: Pins) -> Demand:
        found = self._demands.get(pins)
        if found is None:
            largest = max(kind.memory_bytes for kind in self.kinds)
            found = self._demands[pins] = Demand(
                self.setup,
                pins,
                most_devices=max(kind.total for kind in self.kinds),
                most_bytes=int(largest / self.lessons.least_factor),
            )
        return found


def plan_job(
    setup: TrainingSetup,
    kinds: Sequence[KindSummary],
    *,
    demanded: float = 0.0,
    experience: Experience = NO_EXPERIENCE,
    framework: Framework = Framework.TRAINER,
) -> PlanSet:
    """Return ranked plans for the kinds of a cluster, and what was refused and why.

    ``demanded`` is the least factor on predicted memory that the job's own last attempt calls for
    (0: none);
    ``experience`` is what the attempts of all jobs have taught.
    """
    lessons = Lessons(experience, setup, framework)
    question = _Question(setup, tuple(kinds), lessons, demanded)
    refused = [*unsupported_degrees(setup.pins), *missing_kinds(question.kinds, setup.pins)]
    fitting: list[_Found] = []
    if not unsupported_degrees(setup.pins):
        first = _plan_kinds(question, setup.pins)
        refused += first.refused + first.short
        fitting = first.fitting or _offloaded(question, refused)
    kept = _kept(fitting)
    pins = pinned(setup.pins)
    plans = tuple(_resource_plan(found, kept[0], pins) for found in kept)
    return PlanSet(
        plans=plans,
        refused=tuple(refused),
        kinds_digest=kinds_digest(question.kinds),
        message="" if plans else _summary(refused, question.kinds),
        learned_ms=experience.learned_ms,
    )


@dataclass(frozen=True, slots=True)
class _Answers:
    """What fits of all kinds, and what was refused: for the devices' memory or the nodes' RAM."""

    fitting: list[_Found] = field(default_factory=list[_Found])
    refused: list[RefusedPlan] = field(default_factory=list[RefusedPlan])
    short: list[RefusedPlan] = field(default_factory=list[RefusedPlan])


def _plan_kinds(question: _Question, pins: Pins) -> _Answers:
    answers = _Answers()
    for kind in question.kinds:
        _plan_kind(question, kind, pins, answers)
    return answers


def _offloaded(question: _Question, refused: list[RefusedPlan]) -> list[_Found]:
    """Plan again with more and more of a job in the nodes' RAM, until something fits.

    A script has its states where it wants them. What RAM is short of is added to ``refused``.
    """
    given = question.setup.pins
    if given.offload is not None or question.setup.own_loss:
        return []
    for offload, stages in ((Offload.OPTIMIZER, {1, 2, 3}), (Offload.PARAMETERS, {3})):
        if given.zero_stage is None or given.zero_stage in stages:
            answers = _plan_kinds(question, replace(given, offload=offload))
            if answers.fitting:
                return answers.fitting
            refused += answers.short
    return []


def _plan_kind(question: _Question, kind: KindSummary, pins: Pins, answers: _Answers) -> None:
    left_out = excluded(kind, pins)
    if left_out is not None:
        answers.refused.append(left_out)
        return
    gpu = gpu_model(kind)
    offer = question.offer(kind, gpu, pins)
    if offer is None:
        answers.refused.append(no_precision(kind, pins))
        return
    choices = front(offer)
    housed = [choice for choice in choices if not _short_of(offer, choice)]
    answers.fitting.extend(_Found(offer, choice) for choice in housed)
    if choices and not housed:
        last = choices[-1]
        pin = "resources.offload" if question.setup.pins.offload else ""
        answers.short.append(no_room(kind, offer.plan(last), _short_of(offer, last), pin))
    elif not choices:
        answers.refused.append(_refusal(question, offer, pins))


def _short_of(offer: Offer, choice: Choice) -> str:
    """Return in words what RAM an offloading plan is short of; "" when it is not."""
    plan = offer.plan(choice)
    if plan.offload is Offload.NONE:
        return ""
    return shortage(_host(offer, choice), offer.kind, plan.data)


def _host(offer: Offer, choice: Choice) -> HostEstimate:
    """Return what a plan takes of its nodes; tensors are in RAM only where devices are emulated."""
    peak = choice.ladder.peak(choice.index, choice.loss).allocated if offer.emulated else 0
    needs = offer.demand.host(offer.precision)
    return needs.of_plan(offer.plan(choice), emulated=offer.emulated, allocated=peak)


def _refusal(question: _Question, offer: Offer, pins: Pins) -> RefusedPlan:
    setup = question.setup
    nearest = nearest_miss(offer)
    if nearest is None:
        return no_split(setup, offer.kind, offer.gpu, pins)
    plan = offer.plan(Choice(nearest, 0, nearest.option.losses[-1], inf))
    peak = _peak(nearest, plan, offer)
    taught = offer.terms(nearest.option).memory
    memory = estimate(peak, offer.traits(plan.data), correction=taught)
    return too_large(offer.kind, plan, memory, _culprit(question, offer))


def _peak(ladder: Ladder, plan: ParallelismPlan, offer: Offer) -> Peak:
    """Return the peak of a ladder's smallest micro-batch, also of one that fits no device."""
    if ladder.columns:
        return ladder.peak(0, plan.loss)
    setup = offer.demand.setup
    return predict_peak(
        setup.model,
        setup.attention,
        setup.sequence_length,
        plan,
        cuda=not offer.emulated,
        single_step=setup.optimizer_steps == 1,
    )


def _culprit(question: _Question, offer: Offer) -> str:
    """Return the name of a pin without which something would fit, "" when there is none.

    When only several together are to blame, all that are set are named.
    """
    names: list[str] = []
    loosest = question.setup.pins
    for name, relaxed in relaxations(question.setup.pins):
        if _would_fit(question, offer, relaxed):
            return name
        names.append(name)
    for _ in names:
        loosest = next(relaxed for _, relaxed in relaxations(loosest))
    together = len(names) > 1 and _would_fit(question, offer, loosest)
    return ", ".join(names) if together else ""


def _would_fit(question: _Question, offer: Offer, pins: Pins) -> bool:
    relaxed = question.offer(offer.kind, offer.gpu, pins)
    return relaxed is not None and fits_at_all(relaxed)


def _identity(offer: Offer, choice: Choice) -> PlanId:
    option = choice.ladder.option
    text = (
        f"{offer.kind.kind}-{option.devices}-z{option.zero_stage}"
        f"-m{option.micro_batches[choice.index]}-{offer.precision}-{option.checkpointing}"
        f"{'-chunked' if choice.loss is Loss.CHUNKED else ''}"
        f"{'' if option.offload is Offload.NONE else f'-offload-{option.offload}'}"
    )
    return PlanId(_NOT_ALPHANUMERIC.sub("-", text.lower()))


def _kept(fitting: list[_Found]) -> list[_Found]:
    """Order plans and cut them to ``MAX_PLANS``, keeping the best of every kind."""
    ordered = sorted(fitting, key=lambda found: found.order)
    first = {found.key[0]: found.key for found in reversed(ordered)}
    by_size = sorted(fitting, key=lambda found: -found.choice.devices)
    smallest = {found.key[0]: found.key for found in by_size}
    must = {*first.values(), *smallest.values()}
    room = MAX_PLANS - len(must)
    kept: list[_Found] = []
    for found in ordered:
        if found.key in must:
            kept.append(found)
        elif room > 0:
            kept.append(found)
            room -= 1
    return kept


def _resource_plan(found: _Found, best: _Found, pins: tuple[str, ...]) -> ResourcePlan:
    offer, choice = found.offer, found.choice
    setup = offer.demand.setup
    plan = offer.plan(choice)
    traits = offer.traits(plan.data)
    _, taught, slowness = offer.terms(choice.ladder.option)
    memory = estimate(choice.ladder.peak(choice.index, choice.loss), traits, correction=taught)
    expected = memory.allocated.expected
    host = _host(offer, choice)
    return ResourcePlan(
        id=_identity(offer, choice),
        kind=offer.kind.kind,
        device_count=plan.data,
        single_node=False,
        parallelism=plan,
        memory=memory,
        speed=estimate_speed(setup, plan, offer.kind, offer.gpu, offer.pace, correction=slowness),
        deepspeed_config=deepspeed_config(setup, plan, overlaps=not offer.emulated),
        environment={} if offer.emulated else _CUDA_ENVIRONMENT,
        oom_probability=oom_probability(expected, offer.kind.memory_bytes, traits, taught),
        pinned=pins,
        host=host,
        why=_why(found, best, pins, shortage(host, offer.kind, plan.data)),
    )


def _why(found: _Found, best: _Found, pins: tuple[str, ...], short_of: str) -> str:
    mine, least = found.choice, best.choice
    offer = found.offer
    notes: list[str] = []
    if offer.gpu.assumed:
        notes.append(f"{offer.kind.kind} is not in the catalogue: {offer.gpu.sources}")
    if offer.demand.setup.model.structure.assumed:
        notes.append("nobody has checked this architecture: it is taken to be like Llama")
    if offer.demand.pins.offload not in {None, Offload.NONE} and "resources.offload" not in pins:
        notes.append("nothing fits without the nodes' RAM for what it offloads")
    if pins:
        notes.append(f"pinned by you: {', '.join(pins)}")
    if short_of:
        notes.append(short_of)
    known = offer.demand.setup.optimizer_steps
    of = "" if known else f" for {NOMINAL_STEPS} steps"
    text = f"fastest: {mine.total_s:.0f} s{of} on {mine.devices} x {offer.kind.kind}"
    if found is not best:
        slower = mine.total_s / least.total_s
        hours = slower * mine.devices / least.devices
        text = f"{slower:.2f} times the time of the fastest, {hours:.2f} times its device-hours"
    return "; ".join([text, *notes])


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
