"""From a trace's job to LLM training: a documented, seeded rule.

No public trace says which LLM a job trained. A class that names a known model family gets the
preset beside it in ``CLASSES``; any other job draws from ``BY_WIDTH``, by the GPUs that it asked
for: wide jobs train large models. The number of steps follows from the duration, so that the work
on the reference allocation is what the trace says: the fastest plan of the reference kind with at
most as many devices as were asked for; where none fits there, the smallest plan that fits at all.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from frenzy_shared.catalog.models import architecture_from_config, resolve_model
from frenzy_shared.domain.model import Attention, Pins, TrainingSetup
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_simulator.jobs import SimJob, TraceJob
from frenzy_simulator.throughput import ThroughputModel

Training = tuple[str, int, int]  # model preset, tokens per sequence, sequences per step

_SMALL: Final = ("gpt2", 1024, 32)
_MEDIUM: Final = ("gpt2-medium", 1024, 32)
_LARGE: Final = ("gpt2-large", 1024, 32)
_XL: Final = ("gpt2-xl", 1024, 64)
_1B: Final = ("tinyllama-1.1b", 2048, 64)
_3B: Final = ("llama-3.2-3b", 2048, 64)
_7B: Final = ("llama-2-7b", 2048, 64)

CLASSES: Final[Mapping[str, Training]] = {
    "gpt2": _SMALL,
    "transformer": _SMALL,
    "bert": _MEDIUM,
    "lm": ("smollm2-135m", 1024, 32),
    "sft": _3B,
    "llm": _7B,
    "pretrain": _7B,
}

# GPUs asked for, at most -> trainings that are equally likely
BY_WIDTH: Final[Mapping[int, tuple[Training, ...]]] = {
    1: (("distilgpt2", 1024, 32), ("smollm2-135m", 1024, 32), _SMALL, _MEDIUM),
    2: (_SMALL, _MEDIUM, _LARGE),
    4: (_MEDIUM, _LARGE, _XL),
    8: (_XL, _1B, ("llama-3.2-1b", 2048, 64)),
}
_WIDEST: Final[tuple[Training, ...]] = (_1B, _3B)


def to_sim_jobs(
    trace: Iterable[TraceJob], model: ThroughputModel, reference_kind: str, seed: int = 0
) -> list[SimJob]:
    """Map trace jobs, already in order of arrival, to LLM training jobs.

    A job that fits nowhere keeps its duration as steps; the simulation reports it.
    """
    jobs: list[SimJob] = []
    for sequence, job in enumerate(trace, 1):
        setup = training_of(job, seed)
        reference = _reference(model.plans(setup), reference_kind, job.gpus_requested)
        step_s = reference.speed.step_s if reference is not None else 1.0
        jobs.append(
            SimJob(
                id=job.id,
                sequence=sequence,
                submit_s=job.submit_s,
                setup=setup,
                steps=max(job.duration_s / step_s, 1.0),
                gpus_requested=job.gpus_requested,
                user_vc=job.user_vc,
                priority=job.priority,
                project=job.project,
            )
        )
    return jobs


def training_of(job: TraceJob, seed: int = 0) -> TrainingSetup:
    """Return what a job trains; the same for the same id, class, width and seed."""
    known = CLASSES.get(job.model_or_class.strip().lower())
    if known is None:
        widths = (found for width, found in BY_WIDTH.items() if job.gpus_requested <= width)
        draw = random.Random(f"{seed}/class/{job.id}")  # noqa: S311 - not a secret
        known = draw.choice(next(widths, _WIDEST))
    return _setup(*known)


@cache
def _setup(model: str, sequence_length: int, global_batch_size: int) -> TrainingSetup:
    return TrainingSetup(
        model=architecture_from_config(resolve_model(model)),
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        optimizer_steps=None,
        optimizer="adamw",
        attention=Attention.SDPA,
        learning_rate=1e-4,
        pins=Pins(),
    )


def _reference(plans: Sequence[ResourcePlan], kind: str, count: int) -> ResourcePlan | None:
    exact = [plan for plan in plans if plan.kind == kind and plan.device_count <= count]
    if exact:
        return min(exact, key=lambda plan: plan.speed.step_s)
    return min(plans, key=lambda plan: (plan.device_count, plan.speed.step_s), default=None)
