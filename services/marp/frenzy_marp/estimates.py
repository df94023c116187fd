"""Answer what one exact configuration takes, on a GPU of this cluster or of the catalogue."""

from collections.abc import Iterable
from typing import Final

from frenzy_marp.core.breakdown import (
    breakdown,
    device_traits,
    exact_plan,
    pinned_plan,
    smallest_cards,
)
from frenzy_marp.core.candidates import gpu_model
from frenzy_marp.core.cases.case import CaseModel
from frenzy_marp.core.cases.checks import check_run
from frenzy_marp.core.cases.configs import case_model
from frenzy_marp.core.cases.prediction import Moment
from frenzy_marp.core.cases.question import answer, run_of
from frenzy_marp.core.cases.vocabulary import Outcome
from frenzy_marp.core.frenzy_2024 import published_peak
from frenzy_marp.core.host import HostNeeds
from frenzy_marp.core.learning import Experience, Lessons
from frenzy_marp.core.learning_errors import Correction
from frenzy_marp.core.memory.estimate import oom_probability
from frenzy_marp.core.memory.predictor import Peak
from frenzy_marp.core.refusals import pinned, unsupported_degrees
from frenzy_marp.core.speed import estimate_speed, pace
from frenzy_marp.learning import framework_of
from frenzy_shared.catalog.gpus import GpuModel, named_gpu
from frenzy_shared.catalog.models import resolve_model
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import Attention, Pins, TrainingSetup
from frenzy_shared.domain.plan import MemoryTerm, ParallelismPlan, SpeedEstimate
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.estimate import (
    EstimateRequest,
    EstimateView,
    MomentView,
    overridden,
)
from frenzy_shared.messages.setup import DEFAULT_SEQUENCE_LENGTH, pins_of, training_setup
from frenzy_shared.messages.spec import JobSpec

CARDS: Final = 3  # that are named when none was asked for
_NODE_DEVICES: Final = 8  # of a GPU that the cluster lacks
_BUCKET_ELEMENTS: Final = 100_000_000  # of a model whose layers are not known one by one


def estimate_view(
    request: EstimateRequest, kinds: tuple[KindSummary, ...], experience: Experience
) -> EstimateView:
    """Return what the configuration takes, with what finished runs have taught about it.

    Raises:
        InvalidSpec: the pins contradict each other or the GPU, or no GPU has that name.
        InvalidModelConfig: the model is impossible.
    """
    spec = overridden(request.spec, request.overrides)
    other = case_model(resolve_model(spec.model or {}))
    if other is not None:
        return _other_view(request, spec, other, kinds)
    setup = training_setup(spec)
    for refused in unsupported_degrees(setup.pins):
        raise InvalidSpec(f"{refused.pin}: {refused.reason}")
    kind = None if request.gpu is None else _kind(request.gpu, kinds)
    gpu = None if kind is None else gpu_model(kind)
    plan = exact_plan(setup, gpu)
    lessons = Lessons(experience, setup, framework_of(spec))
    memory_learned, time_learned = lessons.about(
        plan, kind.kind if kind else "", emulated=gpu is not None and gpu.emulated
    )
    found = breakdown(setup, plan, gpu, memory_learned)
    capacity = kind.memory_bytes or None if kind else None
    expected = found.memory.allocated.expected
    traits = device_traits(gpu, plan)
    smallest = smallest_cards(setup, plan, CARDS) if gpu is None else ()
    return EstimateView(
        family=setup.model.family.value,
        parameters=setup.model.num_parameters,
        sequence_length=setup.sequence_length,
        attention=setup.attention.value,
        plan=plan,
        memory=found.memory,
        frenzy_2024_bytes=None
        if setup.model.experts  # the published formula knows none
        else published_peak(
            setup.model,
            sequence_length=setup.sequence_length,
            micro_batch_size=plan.micro_batch_size,
        ),
        moments=moment_views(found.moments),
        gpu=kind.kind if kind else None,
        capacity_bytes=capacity,
        fits=None if capacity is None else found.memory.required.high <= capacity,
        oom_probability=None
        if capacity is None
        else oom_probability(expected, capacity, traits, memory_learned),
        smallest_gpus=tuple(card.name for card in smallest),
        pinned=fixed_by(request, setup.pins),
        host=HostNeeds.of(setup, plan.precision).of_plan(
            plan, emulated=traits.emulated, allocated=expected
        ),
        speed=_speed(setup, plan, kind, gpu, time_learned),
    )


def _other_view(
    request: EstimateRequest, spec: JobSpec, model: CaseModel, kinds: tuple[KindSummary, ...]
) -> EstimateView:
    """Return what a model takes that no plan can train: by the predictor of public runs."""
    if spec.method != "full":
        raise InvalidSpec(
            f"method: {spec.method} is not predicted for {model.family} models",
            suggestions=["use method: full"],
        )
    pins = pins_of(spec)
    for refused in unsupported_degrees(pins):
        raise InvalidSpec(f"{refused.pin}: {refused.reason}")
    kind = None if request.gpu is None else _kind(request.gpu, kinds)
    gpu = None if kind is None else gpu_model(kind)
    plan = pinned_plan(pins, spec.global_batch_size, gpu, bucket=_BUCKET_ELEMENTS)
    capacity = kind.memory_bytes or None if kind else None
    length = spec.sequence_length or min(
        model.max_positions or DEFAULT_SEQUENCE_LENGTH, DEFAULT_SEQUENCE_LENGTH
    )
    attention = Attention(spec.attention)
    run = run_of(model, plan, length=length, attention=attention, gpu=gpu, capacity_bytes=capacity)
    check_run(run)
    memory, moments, found = answer(run)
    return EstimateView(
        family=str(model.family),
        parameters=model.num_parameters,
        sequence_length=length,
        attention=str(attention),
        plan=plan,
        memory=memory,
        moments=moment_views(_peak(moment) for moment in moments),
        gpu=kind.kind if kind else None,
        capacity_bytes=capacity,
        fits=None if found.verdict is None else found.verdict is Outcome.FITS,
        oom_probability=found.p_oom,
        pinned=fixed_by(request, pins),
    )


def _peak(moment: Moment) -> Peak:
    terms = tuple(
        MemoryTerm(name=name, size_bytes=round(size)) for name, size in moment.terms if size > 0
    )
    return Peak(sum(term.size_bytes for term in terms), moment.name, terms)


def fixed_by(request: EstimateRequest, pins: Pins) -> tuple[str, ...]:
    """Return the names of the pins that whoever asks has set; an accumulation implies another."""
    given = (request.spec.resources.micro_batch_size, request.overrides.micro_batch_size)
    implied = () if any(given) else ("resources.micro_batch_size",)
    return tuple(name for name in pinned(pins) if name not in implied)


def moment_views(moments: Iterable[Peak]) -> tuple[MomentView, ...]:
    """Return moments as they are shown."""
    return tuple(
        MomentView(moment=peak.moment, allocated=peak.allocated, terms=peak.terms)
        for peak in moments
    )


def _kind(name: str, kinds: tuple[KindSummary, ...]) -> KindSummary:
    """Return a kind of the cluster, else what a node of such cards would be."""
    present = next((kind for kind in kinds if kind.kind == name), None)
    if present is not None:
        return present
    gpu = named_gpu(name)
    return KindSummary(
        kind=gpu.name,
        memory_bytes=gpu.memory_bytes,
        compute_capability=gpu.compute_capability,
        emulated=gpu.emulated,
        relative_speed=1.0,
        node_counts=(_NODE_DEVICES,),
    )


def _speed(
    setup: TrainingSetup,
    plan: ParallelismPlan,
    kind: KindSummary | None,
    gpu: GpuModel | None,
    learned: Correction,
) -> SpeedEstimate | None:
    if kind is None or gpu is None:
        return None
    ready = pace(setup, kind, gpu, plan.precision, plan.reduce_bucket_elements)
    return estimate_speed(setup, plan, kind, gpu, ready, correction=learned)
