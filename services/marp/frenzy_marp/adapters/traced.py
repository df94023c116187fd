"""Estimates by tracing: a job becomes a question to the tracer, its answer a breakdown.

What a trace cannot know of a GPU: AdamW updates all tensors at once there, which the question
asks for; ZeRO-3 gathers a bucket ahead there, which is added.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from frenzy_marp.adapters.tracing import Tracer
from frenzy_marp.core.breakdown import Breakdown, exact_plan, measured_breakdown, pinned_plan
from frenzy_marp.core.deepspeed_config import deepspeed_config, unsized_config
from frenzy_marp.core.memory.coefficients import Coefficients, Part
from frenzy_marp.core.memory.predictor import Peak, Sharding
from frenzy_marp.core.memory.shape import element_bytes
from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.catalog.models import resolve_model
from frenzy_shared.domain.model import Attention, Family, TrainingSetup
from frenzy_shared.domain.plan import Loss, MemoryTerm, ParallelismPlan
from frenzy_shared.errors import InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.setup import DEFAULT_SEQUENCE_LENGTH, pins_of, training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.trace import (
    DEPTH_FIELDS,
    EngineQuestion,
    Factory,
    LayersTrace,
    TracedMoment,
    TracedPart,
    TraceRequest,
)

ENGINE_MODE: Final = "traced"
LAYERS_MODE: Final = "traced-layers"
_TRACED: Final = "use --mode traced"
_INITIALISATION: Final = "initialisation"  # nothing is gathered yet


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedEstimate:
    """What tracing one exact plan found."""

    found: Breakdown
    parameters: int
    sequence_length: int
    attention: Attention


def trace_estimate(
    tracer: Tracer, spec: JobSpec, gpu: GpuModel | None, factory: Factory | None = None
) -> TracedEstimate:
    """Run DeepSpeed's engine for the plan that a job's pins describe, on ``gpu`` or any CUDA GPU.

    With a ``factory`` the module is what it returns, and the job's model only a name.

    Raises:
        FrenzyError: the pins contradict each other or the GPU, or there is no trace.
    """
    plan, config, setup = _planned(spec, gpu, known=factory is None)
    cuda = gpu is None or not gpu.emulated
    if cuda:
        config["optimizer"]["params"]["foreach"] = True
    steps: Literal[1, 2] = 1 if spec.max_steps == 1 else 2
    question = EngineQuestion(config=config, ranks=plan.world_size, steps=steps)
    request = _request(spec, plan, setup, factory, question)
    engine = tracer.engine(request)
    bucket = int(engine.config["zero_optimization"]["reduce_bucket_size"])
    plan = replace(plan, reduce_bucket_elements=bucket)
    ahead = _gathered_ahead(plan) if cuda else 0
    moments = tuple(_peak(moment, ahead) for moment in engine.moments)
    return TracedEstimate(
        found=measured_breakdown(moments, plan, gpu, ENGINE_MODE),
        parameters=engine.parameters,
        sequence_length=request.sequence_length,
        attention=request.attention,
    )


def compose_estimate(
    tracer: Tracer, spec: JobSpec, gpu: GpuModel | None, factory: Factory | None = None
) -> TracedEstimate:
    """Put a model of any depth together from a trace of one layer, and add states by formula.

    Raises:
        FrenzyError: as ``trace_estimate``; the depth is not a number of a configuration; or
            ZeRO-3 on several GPUs, which gathers weights inside a layer.
    """
    if factory is not None:
        raise InvalidSpec(
            f"{factory.target} makes a module as it is, not one of another depth",
            suggestions=[_TRACED],
        )
    plan, _, setup = _planned(spec, gpu, known=True)
    if plan.tensor > 1:
        raise InvalidSpec("a layer's trace is not split over devices", suggestions=[_TRACED])
    request = _request(spec, plan, setup, None, None)
    if request.adapters is not None:
        raise InvalidSpec("frozen weights are not in a layer's trace", suggestions=[_TRACED])
    coefficients = coefficients_of(tracer.layers(request))
    model = request.model or {}
    layers = next(int(model[name]) for name in DEPTH_FIELDS if name in model)
    if not plan.reduce_bucket_elements:
        layer = sum(coefficients.layer.parameters)
        plan = replace(plan, reduce_bucket_elements=layer + layer % 2)
    sharding = Sharding(
        stage=plan.zero_stage,
        ranks=plan.data,
        accumulates=plan.gradient_accumulation_steps > 1,
        cuda=gpu is None or not gpu.emulated,
    )
    moments = coefficients.peaks(
        layers,
        sharding,
        element=element_bytes(plan.precision),
        bucket=plan.reduce_bucket_elements,
    )
    return TracedEstimate(
        found=measured_breakdown(tuple(moments), plan, gpu, LAYERS_MODE),
        parameters=coefficients.parameters(layers),
        sequence_length=request.sequence_length,
        attention=request.attention,
    )


def coefficients_of(trace: LayersTrace) -> Coefficients:
    """Return the coefficients that a trace found."""
    return Coefficients(
        layer=_part(trace.layer), ends=_part(trace.ends), head=trace.head_parameters
    )


def _part(part: TracedPart) -> Part:
    return Part(
        kept=part.kept_bytes,
        forward_peak=part.forward_peak_bytes,
        points=part.peaks + part.handing,
        parameters=part.parameters,
    )


def _request(
    spec: JobSpec,
    plan: ParallelismPlan,
    setup: TrainingSetup | None,
    factory: Factory | None,
    engine: EngineQuestion | None,
) -> TraceRequest:
    length = _length(spec, known=factory is None)
    chunk = None
    if setup is not None and plan.loss is Loss.CHUNKED:
        chunk = setup.model.chunk_length(length)
    return TraceRequest(
        model=resolve_model(spec.model or {}) if factory is None else None,
        factory=factory,
        sequence_length=length,
        micro_batch_size=plan.micro_batch_size,
        precision=plan.precision,
        attention=Attention(spec.attention),
        checkpointing=plan.activation_checkpointing,
        adapters=None if setup is None else setup.model.adapters,
        loss_chunk=chunk,
        engine=engine,
    )


def _planned(
    spec: JobSpec, gpu: GpuModel | None, *, known: bool
) -> tuple[ParallelismPlan, dict[str, Any], TrainingSetup | None]:
    """Return a job's plan, its configuration, and its set-up where the family is known.

    There plan and configuration are exactly the planner's.
    """
    if spec.resources.pipeline not in {None, 1}:
        raise InvalidSpec("resources.pipeline: pipeline parallelism is not in this release")
    if known:
        try:
            setup = training_setup(spec)
        except InvalidModelConfig:
            if spec.method == "lora" or _family(spec) in set(Family):
                raise  # dimensions that cannot be, or adapters of a family that is not known
        else:
            plan = exact_plan(setup, gpu)
            return plan, deepspeed_config(setup, plan, overlaps=False), setup
    plan = pinned_plan(pins_of(spec), spec.global_batch_size, gpu, bucket=0)
    return plan, unsized_config(plan), None


def _family(spec: JobSpec) -> str:
    return str(resolve_model(spec.model or {}).get("model_type"))


def _length(spec: JobSpec, *, known: bool) -> int:
    if spec.sequence_length is not None:
        return spec.sequence_length
    longest = resolve_model(spec.model or {}).get("max_position_embeddings") if known else None
    if isinstance(longest, int) and longest > 1:
        return min(longest, DEFAULT_SEQUENCE_LENGTH)
    return DEFAULT_SEQUENCE_LENGTH


def _gathered_ahead(plan: ParallelismPlan) -> int:
    """Return what ZeRO-3 holds of the next layer: flat, and cut into parameters (states.py)."""
    if plan.zero_stage != 3 or plan.world_size == 1:
        return 0
    return 2 * plan.reduce_bucket_elements * element_bytes(plan.precision)


def _peak(moment: TracedMoment, ahead: int) -> Peak:
    terms = [MemoryTerm(name=term.name, size_bytes=term.size_bytes) for term in moment.terms]
    if ahead and moment.name != _INITIALISATION:
        terms.append(MemoryTerm(name="gathered ahead (formula)", size_bytes=ahead))
    return Peak(sum(term.size_bytes for term in terms), moment.name, tuple(terms))
