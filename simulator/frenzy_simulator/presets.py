"""From a trace's job to LLM training: a documented, seeded rule.

No public trace says which LLM a job trained. A class that names a known model family gets the
preset beside it in ``CLASSES``; any other job draws from ``BY_WIDTH``, by the GPUs that it asked
for: wide jobs train large models. The number of steps follows from the duration, so that the work
on the reference allocation is what the trace says: the fastest plan of the reference kind with at
most as many devices as were asked for; where none fits there, the smallest plan that fits at all.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Final

from frenzy_shared.domain.plan import ResourcePlan
from frenzy_simulator.jobs import SimJob, TraceJob, Workload
from frenzy_simulator.throughput import ThroughputModel


def _work(model: str, sequence_length: int, global_batch_size: int) -> Workload:
    return Workload(
        model=model, sequence_length=sequence_length, global_batch_size=global_batch_size
    )


_SMALL: Final = _work("gpt2", 1024, 32)
_MEDIUM: Final = _work("gpt2-medium", 1024, 32)
_XL: Final = _work("gpt2-xl", 1024, 64)

CLASSES: Final = {
    "gpt2": _SMALL,
    "transformer": _SMALL,
    "bert": _MEDIUM,
    "lm": _work("smollm2-135m", 1024, 32),
    "llm": _work("llama-2-7b", 2048, 64),
    "pretrain": _work("llama-2-7b", 2048, 64),
    "sft": _work("llama-3.2-3b", 2048, 64),
}

# GPUs asked for, at most -> workloads that are equally likely
BY_WIDTH: Final[tuple[tuple[int, tuple[Workload, ...]], ...]] = (
    (1, (_work("distilgpt2", 1024, 32), _work("smollm2-135m", 1024, 32), _SMALL, _MEDIUM)),
    (2, (_SMALL, _MEDIUM, _work("gpt2-large", 1024, 32))),
    (4, (_MEDIUM, _work("gpt2-large", 1024, 32), _XL)),
    (8, (_XL, _work("tinyllama-1.1b", 2048, 64), _work("llama-3.2-1b", 2048, 64))),
    (1 << 30, (_work("tinyllama-1.1b", 2048, 64), _work("llama-3.2-3b", 2048, 64))),
)


def to_sim_jobs(
    trace: Iterable[TraceJob], model: ThroughputModel, reference_kind: str, seed: int = 0
) -> list[SimJob]:
    """Map trace jobs, already in order of arrival, to LLM training jobs.

    A job whose workload fits nowhere keeps its duration as steps; the simulation reports it.
    """
    jobs: list[SimJob] = []
    for sequence, job in enumerate(trace, 1):
        workload = workload_of(job, seed)
        reference = _reference(model.plans(workload), reference_kind, job.gpus_requested)
        step_s = reference.speed.step_s if reference is not None else 1.0
        jobs.append(
            SimJob(
                id=job.id,
                sequence=sequence,
                submit_s=job.submit_s,
                workload=workload,
                steps=max(job.duration_s / step_s, 1.0),
                gpus_requested=job.gpus_requested,
                user_vc=job.user_vc,
            )
        )
    return jobs


def workload_of(job: TraceJob, seed: int = 0) -> Workload:
    """Return what a job trains; the same for the same id, class, width and seed."""
    known = CLASSES.get(job.model_or_class.strip().lower())
    if known is not None:
        return known
    choices = next(found for width, found in BY_WIDTH if job.gpus_requested <= width)
    return random.Random(f"{seed}/class/{job.id}").choice(choices)  # noqa: S311 - not a secret


def _reference(plans: Sequence[ResourcePlan], kind: str, count: int) -> ResourcePlan | None:
    exact = [plan for plan in plans if plan.kind == kind and plan.device_count <= count]
    if exact:
        return min(exact, key=lambda plan: plan.speed.step_s)
    return min(plans, key=lambda plan: (plan.device_count, plan.speed.step_s), default=None)
