"""MARP in this process: estimates and plans without a server. Needs numpy (``frenzy[server]``)."""

from pathlib import Path

from frenzy.catalogue import use_gpus
from frenzy_marp.adapters.traced import LAYERS_MODE, compose_estimate, trace_estimate
from frenzy_marp.adapters.tracing import Tracer
from frenzy_marp.core.breakdown import cards_holding
from frenzy_marp.core.learning import Experience
from frenzy_marp.core.planner import plan_job
from frenzy_marp.estimates import CARDS, estimate_view, fixed_by, moment_views
from frenzy_shared.catalog.gpus import named_gpu
from frenzy_shared.catalog.models import resolve_model
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.estimate import EstimateRequest, EstimateView, overridden
from frenzy_shared.messages.setup import pins_of, training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.trace import Factory
from frenzy_simulator.cluster import load_cluster


def estimate(request: EstimateRequest) -> EstimateView:
    """Predict what one exact configuration takes, on a GPU of the catalogue or any CUDA GPU.

    Raises:
        FrenzyError: the model is impossible, or the pins contradict each other or the GPU.
    """
    use_gpus()
    return estimate_view(request, (), Experience())


def traced_estimate(request: EstimateRequest, factory: Factory | None, mode: str) -> EstimateView:
    """Measure the memory of one exact configuration: in the engine itself, or of a layer.

    Runs the ``factory`` of this machine's user in a child process, when one is given.

    Raises:
        FrenzyError: the pins contradict each other or the GPU, or there is no trace.
    """
    use_gpus()
    spec = overridden(request.spec, request.overrides)
    card = None if request.gpu is None else named_gpu(request.gpu)
    tracer = Tracer(allow_code=factory is not None)
    if mode == LAYERS_MODE:
        traced = compose_estimate(tracer, spec, card, factory)
    else:
        traced = trace_estimate(tracer, spec, card, factory)
    found = traced.found
    highest = max(found.moments, key=lambda moment: moment.allocated)
    pins = pins_of(spec)
    capacity = (card.memory_bytes or None) if card else None
    holding = cards_holding(highest, pins, found.plan, CARDS) if card is None else ()
    return EstimateView(
        family=str(resolve_model(spec.model or {}).get("model_type")),
        parameters=traced.parameters,
        sequence_length=traced.sequence_length,
        attention=str(traced.attention),
        plan=found.plan,
        memory=found.memory,
        moments=moment_views(found.moments),
        gpu=card.name if card else None,
        capacity_bytes=capacity,
        fits=None if capacity is None else found.memory.required.high <= capacity,
        smallest_gpus=tuple(gpu.name for gpu in holding),
        pinned=fixed_by(request, pins),
    )


def plan(spec: JobSpec, cluster: Path) -> tuple[PlanSet, dict[str, int]]:
    """Plan for the cluster that a file describes; return the plans and each kind's memory.

    Raises:
        FrenzyError: the file is wrong, or the job's model or sequence is impossible.
    """
    use_gpus()
    kinds = summarize_kinds(load_cluster(cluster))
    capacities = {kind.kind: kind.memory_bytes for kind in kinds}
    return plan_job(training_setup(spec), kinds), capacities
