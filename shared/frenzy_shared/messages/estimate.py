"""Ask what one exact configuration takes: a job's specification, and what to change in it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from frenzy_shared.domain.plan import (
    ActivationCheckpointing,
    HostEstimate,
    MemoryEstimate,
    MemoryTerm,
    ParallelismPlan,
    Precision,
    SpeedEstimate,
)
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.spec import JobSpec, parse_spec

_Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


class Overrides(Wire):
    """What to change in a specification; None leaves it as it is.

    With ``gradient_accumulation_steps`` the global batch follows from it; without, it is kept.
    """

    gpus: _Count | None = None
    zero_stage: Annotated[int, Field(ge=0, le=3, strict=True)] | None = None
    micro_batch_size: _Count | None = None
    gradient_accumulation_steps: _Count | None = None
    gradient_checkpointing: ActivationCheckpointing | None = None
    precision: Precision | None = None
    tensor: _Count | None = None
    pipeline: _Count | None = None
    sequence_length: _Count | None = None
    attention: Literal["sdpa", "eager"] | None = None


class EstimateRequest(Wire):
    """Ask MARP what an exact configuration takes on ``gpu``. Nothing is stored.

    ``gpu`` is a kind of this cluster or a name of the catalogue; None: any CUDA GPU.
    """

    spec: JobSpec
    gpu: str | None = None
    overrides: Overrides = Overrides()


class MomentView(Wire):
    """The highest point of one part of a run, with what is alive there, bytes per GPU."""

    moment: str
    allocated: int
    terms: tuple[MemoryTerm, ...]


class EstimateView(Wire):
    """What one exact configuration takes. Bytes are per GPU; ``pinned`` is what was fixed.

    ``capacity_bytes`` is what the cluster's nodes measured where they have the GPU, else the
    catalogue's. ``fits``, ``oom_probability`` and ``speed`` are None without a GPU;
    ``smallest_gpus`` hold it then.
    """

    family: str
    parameters: int
    sequence_length: int
    attention: str
    plan: ParallelismPlan
    memory: MemoryEstimate
    frenzy_2024_bytes: int | None = None  # by the published formula
    moments: tuple[MomentView, ...]
    gpu: str | None = None
    capacity_bytes: int | None = None
    fits: bool | None = None
    oom_probability: float | None = None
    smallest_gpus: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    host: HostEstimate | None = None
    speed: SpeedEstimate | None = None


class EstimateReply(Wire):
    """MARP's answer; exactly one of ``estimate`` and ``error`` is set."""

    estimate: EstimateView | None = None
    error_code: str = ""
    error: str = ""
    suggestions: tuple[str, ...] = ()


def overridden(spec: JobSpec, overrides: Overrides) -> JobSpec:
    """Return ``spec`` with what ``overrides`` changes.

    Raises:
        InvalidSpec: the two together break a rule.
    """
    changes = overrides.model_dump(mode="json", exclude_none=True)
    accumulation = changes.pop("gradient_accumulation_steps", None)
    top = ("gradient_checkpointing", "precision", "sequence_length", "attention")
    fields: dict[str, Any] = {name: changes.pop(name) for name in top if name in changes}
    document = spec.model_dump(mode="json", exclude_none=True)
    resources = {**document.get("resources", {}), **changes}
    if accumulation is not None:
        micro_batch = resources.setdefault("micro_batch_size", 1)
        fields["global_batch_size"] = micro_batch * resources.get("gpus", 1) * accumulation
    return parse_spec({**document, **fields, "resources": resources})


class DriftView(Wire):
    """Predictions that have lately left their bands: ``outside`` of the last ``runs`` of a group.

    ``ratio`` is the median of observed over predicted peaks.
    """

    group: str
    runs: int
    outside: int
    ratio: float


class DriftRequest(Wire):
    """Ask MARP which predictions drift."""


class DriftList(Wire):
    """What drifts; nothing when all is well."""

    drifts: tuple[DriftView, ...] = ()
