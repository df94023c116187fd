"""What a job could run with if one of its pins were not there: MARP's plans, asked for over rpc."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from frenzy_scheduler.core.counterfactual import Relaxed
from frenzy_shared.bus.port import Bus
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)

# In the order in which a user would rather give one up.
_RESOURCES: Final = ("gpus", "max_gpus", "micro_batch_size", "zero_stage", "gpu_memory")
_KINDS: Final = ("kinds", "exclude_kinds")
_TRAINING: Final = ("gradient_checkpointing", "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """Asks MARP; its silence means that nothing is known."""

    bus: Bus
    timeout_s: float = 0.5

    async def of(self, spec: JobSpec) -> list[Relaxed]:
        """Return the plans without each pin that is set."""
        asked = [self._without(pin, value, free) for pin, value, free in relaxations(spec)]
        found = await asyncio.gather(*asked)
        return [relaxed for relaxed in found if relaxed is not None]

    async def _without(self, pin: str, value: str, spec: JobSpec) -> Relaxed | None:
        question = PlanRequest(spec=spec).encode()
        try:
            payload = await self.bus.request(subjects.MARP_PLAN, question, timeout_s=self.timeout_s)
            plans = PlanReply.decode(payload).plans
        except (Unavailable, ValidationError) as error:
            log.info("what a job could run with without %s is not known: %s", pin, error)
            return None
        if plans is None or not plans.plans:
            return None
        return Relaxed(pin=pin, value=value, plans=plans.plans)


def relaxations(spec: JobSpec) -> Iterator[tuple[str, str, JobSpec]]:
    """Yield each pin that is set: its key, its value, and the specification without it."""
    for name in (*_RESOURCES, *_KINDS):
        free = _reset(spec.resources, name)
        if free != spec.resources:
            value = _shown(getattr(spec.resources, name))
            yield f"resources.{name}", value, spec.model_copy(update={"resources": free})
    for name in _TRAINING:
        free_spec = _reset(spec, name)
        if free_spec != spec:
            yield name, _shown(getattr(spec, name)), free_spec


def _reset(model: M, name: str) -> M:
    return model.model_copy(update={name: type(model).model_fields[name].default})


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
