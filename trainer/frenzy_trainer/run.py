"""Everything that one rank of a built-in job needs to know, resolved and checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from frenzy_shared.catalog.models import resolve_model
from frenzy_shared.domain.continuation import PlanShape, shape_of
from frenzy_shared.domain.model import ModelArchitecture
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.errors import Misconfigured
from frenzy_shared.messages.codec import from_json
from frenzy_shared.messages.setup import sequence_length, trained_model
from frenzy_shared.messages.spec import JobSpec
from frenzy_trainer.environment import RankEnvironment, read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A rank's job: what to train (``spec``), how (``plan``), and where it is (``environment``)."""

    environment: RankEnvironment
    spec: JobSpec
    plan: ResourcePlan
    model_config: Mapping[str, Any]
    architecture: ModelArchitecture
    deepspeed_config: Mapping[str, Any]
    sequence_length: int
    continues: PlanShape | None = None  # of the attempt that still trains while this one gets ready

    @property
    def converts(self) -> bool:
        """Tell whether the checkpoint that is still to come was made under another plan."""
        return self.continues is not None and self.continues != shape_of(self.plan.parallelism)

    @property
    def tokens_per_step(self) -> int:
        """Return the tokens of one optimizer step over all ranks."""
        return self.spec.global_batch_size * self.sequence_length

    def total_steps(self, num_sequences: int) -> int:
        """Return the optimizer steps of the whole run; one epoch unless the spec says more."""
        if self.spec.max_steps is not None:
            return self.spec.max_steps
        sequences = (self.spec.epochs or 1.0) * num_sequences
        return max(1, math.ceil(sequences / self.spec.global_batch_size))


def read_run(environment: RankEnvironment) -> Run:
    """Read plan.json and deepspeed.json.

    Raises:
        Misconfigured: a file is unreadable, or the plan does not belong to this gang.
        InvalidModelConfig: the model's configuration is impossible.
        InvalidSpec: the model cannot have these adapters.
    """
    document = read_json(environment.plan_file)
    try:
        spec = JobSpec.model_validate(document["spec"])
        plan = from_json(ResourcePlan, document["plan"])
        former = document.get("continues")
        continues = from_json(PlanShape, former) if former else None
    except (KeyError, ValidationError) as error:
        raise Misconfigured(f"{environment.plan_file} is not a plan: {error}") from error
    _check_gang(environment, spec, plan)
    return Run(
        environment=environment,
        spec=spec,
        plan=plan,
        model_config=resolve_model(spec.model or {}),
        architecture=trained_model(spec),
        deepspeed_config=read_json(environment.deepspeed_file),
        sequence_length=sequence_length(spec),
        continues=continues,
    )


def _check_gang(environment: RankEnvironment, spec: JobSpec, plan: ResourcePlan) -> None:
    parallelism = plan.parallelism
    if parallelism.tensor * parallelism.pipeline != 1:
        raise Misconfigured("this trainer runs data-parallel plans: tensor and pipeline must be 1")
    if parallelism.world_size != environment.world_size:
        raise Misconfigured(
            f"the plan has {parallelism.world_size} ranks, WORLD_SIZE is {environment.world_size}"
        )
    if parallelism.global_batch_size != spec.global_batch_size:
        raise Misconfigured(
            f"the plan trains {parallelism.global_batch_size} sequences per step, "
            f"the job asks for {spec.global_batch_size}"
        )
