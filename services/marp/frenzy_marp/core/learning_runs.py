"""What is kept of a finished attempt: physical conditions, what was predicted, what came true."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

from frenzy_marp.core.learning_errors import LogError
from frenzy_shared.domain.job import JobRecord, RankOutcome, StopReason
from frenzy_shared.domain.model import Pins, TrainingSetup
from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    Offload,
    ParallelismPlan,
    Precision,
    ResourcePlan,
)

MAX_RANKS: Final = 64  # whose peaks are kept; the worst one counts

_STEPS_OF_A_PEAK: Final = 2  # Adam's moments exist from the first update on
_STEPS_OF_A_RATE: Final = 10  # the first ones are slow


class Framework(StrEnum):
    """What trains: the two err differently."""

    TRAINER = "trainer"
    SCRIPT = "script"


class Ending(StrEnum):
    """What the end of an attempt says about its memory."""

    WHOLE = "whole"  # its peak was reached
    CUT = "cut"  # stopped before it can be known
    OUT_OF_MEMORY = "oom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The physical facts that errors may depend on; never whose job it was, or its name."""

    framework: Framework
    kind: str
    emulated: bool
    family: str
    method: str  # "full", "lora"
    optimizer: str
    attention: str
    precision: Precision
    zero_stage: int
    sharded: bool
    checkpointing: ActivationCheckpointing
    shape: str  # of model and sequence
    offload: Offload = Offload.NONE

    @property
    def levels(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return what is shared with fewer and fewer runs: method, plan shape, model."""
        method = (
            self.framework,
            self.kind,
            "emulated" if self.emulated else "real",
            self.family,
            self.method,
            self.optimizer,
            self.attention,
            self.precision,
        )
        offloaded = "" if self.offload is Offload.NONE else f"-offload-{self.offload}"
        stage = f"zero-{self.zero_stage}{offloaded}"
        plan = (*method, stage, "gang" if self.sharded else "alone", self.checkpointing)
        return method, plan, (*plan, self.shape)

    @property
    def group(self) -> str:
        """Return the name of the group that the store keeps such runs in."""
        return "/".join(self.levels[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished attempt. Bytes are of a device, seconds of an optimizer step.

    What was predicted is without corrections, what was shown (by the plan) with them.
    ``room``: the device is full at so many times the predicted bytes.
    """

    id: str  # "<job>#<attempt>"
    time_ms: int
    conditions: Conditions
    ending: Ending
    predicted_bytes: int
    shown_bytes: int
    low_bytes: int  # of the band that was shown
    high_bytes: int
    room: float
    allocated_bytes: tuple[int, ...] = ()  # by rank
    reserved_bytes: tuple[int, ...] = ()
    predicted_step_s: float
    shown_step_s: float
    step_s: float | None = None

    @property
    def peak_bytes(self) -> int | None:
        """Return the observed peak of the rank that needed most, as far as the run came."""
        return max(self.allocated_bytes, default=None)

    @property
    def memory_error(self) -> LogError | None:
        """Return what the run says about predicted memory; None: nothing."""
        peak = self.peak_bytes
        if self.ending is Ending.OUT_OF_MEMORY:
            seen = peak / self.predicted_bytes if peak else 0.0
            bound = max(self.room, seen)
            return LogError.at_least(bound) if bound > 0 else None
        if self.ending is Ending.CUT:
            return None
        if peak:
            return LogError.exactly(peak / self.predicted_bytes)
        return LogError.at_most(self.room) if self.room > 0 else None

    @property
    def reserved_ratio(self) -> float | None:
        """Return what the allocator reserved per allocated byte; None: nothing is known of it."""
        if self.ending is not Ending.WHOLE or not self.reserved_bytes or not self.peak_bytes:
            return None
        return max(self.reserved_bytes) / self.peak_bytes

    @property
    def speed_error(self) -> LogError | None:
        """Return what the run says about the predicted time of a step; None: nothing."""
        return (
            None if self.step_s is None else LogError.exactly(self.step_s / self.predicted_step_s)
        )


def shape_of(setup: TrainingSetup) -> str:
    """Return a digest of what is trained: everything but the plan, the pins and the length."""
    same = replace(
        setup,
        global_batch_size=1,
        optimizer_steps=None,
        learning_rate=0.0,
        weight_decay=0.0,
        gradient_clipping=None,
        pins=Pins(),
    )
    return hashlib.sha256(json.dumps(asdict(same), sort_keys=True).encode()).hexdigest()[:16]


def conditions(
    setup: TrainingSetup,
    plan: ParallelismPlan,
    *,
    framework: Framework,
    kind: str,
    emulated: bool,
    shape: str,
) -> Conditions:
    """Return the conditions of running ``plan`` on a kind; ``shape`` is ``shape_of(setup)``."""
    return Conditions(
        framework=framework,
        kind=kind,
        emulated=emulated,
        family=setup.model.family.value,
        method="full" if setup.model.adapters is None else "lora",
        optimizer=setup.optimizer,
        attention=setup.attention.value,
        precision=plan.precision,
        zero_stage=plan.zero_stage,
        sharded=plan.world_size > 1,
        checkpointing=plan.activation_checkpointing,
        shape=shape,
        offload=plan.offload,
    )


def is_over(record: JobRecord) -> bool:
    """Tell whether every rank of the present attempt has ended, as its nodes saw it."""
    ranks = 0 if record.placement is None else len(record.placement.devices)
    return ranks > 0 and len(record.outcomes) == ranks


def run_of(
    record: JobRecord,
    plan: ResourcePlan,
    setup: TrainingSetup,
    conditions: Conditions,
    *,
    room: float,
    predicted_bytes: int,
) -> Run:
    """Return what is kept of an attempt that is over."""
    outcomes = sorted(record.outcomes, key=lambda outcome: outcome.rank)
    allocated = plan.memory.allocated
    kept = outcomes[:MAX_RANKS]
    return Run(
        id=f"{record.id}#{record.attempt}",
        time_ms=record.updated_ms,
        conditions=conditions,
        ending=_ending(outcomes),
        predicted_bytes=predicted_bytes,
        shown_bytes=allocated.expected,
        low_bytes=allocated.low,
        high_bytes=allocated.high,
        room=room,
        allocated_bytes=tuple(o.peak_allocated_bytes for o in kept if o.peak_allocated_bytes),
        reserved_bytes=tuple(o.peak_reserved_bytes for o in kept if o.peak_reserved_bytes),
        predicted_step_s=plan.speed.step_s / plan.speed.correction,
        shown_step_s=plan.speed.step_s,
        step_s=_step_s(outcomes, setup),
    )


def _ending(outcomes: list[RankOutcome]) -> Ending:
    if any(outcome.reason is StopReason.CUDA_OUT_OF_MEMORY for outcome in outcomes):
        return Ending.OUT_OF_MEMORY
    completed = all(outcome.reason is StopReason.COMPLETED for outcome in outcomes)
    stepped = all((outcome.last_step or 0) >= _STEPS_OF_A_PEAK for outcome in outcomes)
    return Ending.WHOLE if completed or stepped else Ending.CUT


def _step_s(outcomes: list[RankOutcome], setup: TrainingSetup) -> float | None:
    """Return the mean time of a step; every rank reports the whole job's tokens per second."""
    rates = [outcome.tokens_per_second for outcome in outcomes if outcome.tokens_per_second]
    steps = max((outcome.last_step or 0 for outcome in outcomes), default=0)
    if not rates or steps < _STEPS_OF_A_RATE:
        return None
    return setup.global_batch_size * setup.sequence_length / min(rates)
