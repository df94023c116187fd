"""The job specification: what a user writes. Flat, snake_case, unknown keys refused."""

import difflib
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from frenzy_shared.domain.ids import is_name
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_shared.errors import FieldProblem, InvalidSpec
from frenzy_shared.messages.base import Wire
from frenzy_shared.units import parse_bytes, parse_duration_s

Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
Environment = Annotated[str, Field(max_length=8192)]

_RESERVED_ENV = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "PATH",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "CUDA_VISIBLE_DEVICES",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)
_RESERVED_PREFIXES = ("FRENZY_", "MASTER_")


class _Section(Wire):
    model_config = ConfigDict(strict=True)


class Checkpointing(_Section):
    """When to save, how many to keep, and whether to resume from the job's own checkpoints."""

    every_steps: Size | None = None
    keep: Annotated[int, Field(ge=1, le=100)] = 2
    resume: bool = True


class Entrypoint(_Section):
    """A user's own script, run once per rank as under torchrun."""

    script: str
    args: Annotated[tuple[str, ...], Field(max_length=256, strict=False)] = ()

    @field_validator("script")
    @classmethod
    def _inside_the_work_folder(cls, script: str) -> str:
        parts = script.split("/")
        if not script.endswith(".py") or script.startswith("/") or ".." in parts or "\0" in script:
            raise ValueError("name a .py file by a path relative to workdir, without '..'")
        return script

    @field_validator("args")
    @classmethod
    def _no_nul(cls, args: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in arg for arg in args):
            raise ValueError("arguments must not hold NUL characters")
        return args


class Resources(_Section):
    """Pins. All optional: whatever is absent, Frenzy decides."""

    gpu_memory: str | None = None  # "24GB..80GB", "24GB..", "..80GB" or "24GB"
    kinds: Annotated[tuple[str, ...], Field(strict=False)] = ()
    gpus: Annotated[int, Field(ge=1, le=65_536)] | None = None
    max_gpus: Annotated[int, Field(ge=1, le=65_536)] | None = None
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    tensor: Annotated[int, Field(ge=1, le=1024)] | None = None
    pipeline: Annotated[int, Field(ge=1, le=1024)] | None = None
    micro_batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None

    @field_validator("gpu_memory")
    @classmethod
    def _range(cls, text: str | None) -> str | None:
        if text is not None:
            memory_range(text)
        return text

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        if self.gpus and self.max_gpus and self.gpus > self.max_gpus:
            raise ValueError(f"gpus ({self.gpus}) is above max_gpus ({self.max_gpus})")
        return self


class Retry(_Section):
    """How often a failing job is tried again."""

    max_retries: Annotated[int, Field(ge=0, le=100)] = 2
    max_oom_retries: Annotated[int, Field(ge=0, le=10)] = 3


class JobSpec(_Section):
    """What to train.

    Only ``model`` + ``data`` (or ``entrypoint``) + ``global_batch_size`` are needed.

    ``model`` is a preset's name or the contents of a Hugging Face ``config.json``.
    ``data`` is ``blob:sha256:<hex>`` (what the client made of a local path) or
    ``node:<absolute path>`` (already on every node); ``workdir`` and ``tokenizer`` likewise.
    """

    spec_version: Literal[1] = 1
    name: str | None = None
    model: str | dict[str, Any] | None = None
    method: Literal["full"] = "full"
    data: str | None = None
    tokenizer: str | None = None  # None: bytes
    sequence_length: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    global_batch_size: Annotated[int, Field(ge=1, le=1_048_576)]
    max_steps: Annotated[int, Field(ge=1, le=10**9)] | None = None
    epochs: Annotated[float, Field(gt=0, le=10**6, strict=False)] | None = None
    precision: Annotated[Precision, Field(strict=False)] | None = None
    optimizer: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=10, strict=False)] = 3e-4
    lr_scheduler: Literal["constant", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 0
    weight_decay: Annotated[float, Field(ge=0, le=10, strict=False)] = 0.0
    gradient_clipping: Annotated[float, Field(gt=0, strict=False)] | None = 1.0
    gradient_checkpointing: Annotated[ActivationCheckpointing, Field(strict=False)] | None = None
    attention: Literal["eager", "sdpa"] = "sdpa"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    checkpoint: Checkpointing = Checkpointing()
    entrypoint: Entrypoint | None = None
    workdir: str | None = None
    env: Annotated[dict[str, Environment], Field(max_length=256, default_factory=dict)]
    resources: Resources = Resources()
    priority: Annotated[int, Field(ge=0, le=100)] = 50
    max_duration: str | None = None
    retry: Retry = Retry()
    labels: Annotated[dict[str, str], Field(max_length=64, default_factory=dict)]

    @field_validator("name")
    @classmethod
    def _name(cls, name: str | None) -> str | None:
        if name is not None and not is_name(name):
            raise ValueError("use 1-63 characters of a-z, 0-9 and '-', no '-' at either end")
        return name

    @field_validator("data", "tokenizer", "workdir")
    @classmethod
    def _reference(cls, text: str | None) -> str | None:
        if text is not None:
            check_reference(text)
        return text

    @field_validator("env")
    @classmethod
    def _environment(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _is_env_name(name):
                raise ValueError(f"{name!r} is not an environment name: A-Z, 0-9 and '_' only")
            if name in _RESERVED_ENV or name.startswith(_RESERVED_PREFIXES):
                raise ValueError(f"{name!r} is reserved: Frenzy sets it")
            if "\0" in value:
                raise ValueError(f"the value of {name!r} holds a NUL character")
        return env

    @field_validator("labels")
    @classmethod
    def _labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for key, value in labels.items():
            if not is_name(key) or len(value) > 256:
                raise ValueError(f"label {key!r}: keys are a-z, 0-9, '-'; values up to 256 long")
        return labels

    @field_validator("max_duration")
    @classmethod
    def _duration(cls, text: str | None) -> str | None:
        if text is not None:
            parse_duration_s(text)
        return text

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.entrypoint is None and (self.model is None or self.data is None):
            raise ValueError("give model and data, or an entrypoint")
        if self.entrypoint is not None and self.workdir is None:
            raise ValueError("entrypoint needs workdir: the folder that holds the script")
        if self.entrypoint is not None and self.model is None:
            raise ValueError(
                "entrypoint needs model too: its config is what memory is planned from"
            )
        if self.max_steps is not None and self.epochs is not None:
            raise ValueError("give max_steps or epochs, not both")
        return self


def parse_spec(document: object) -> JobSpec:
    """Validate a decoded YAML / JSON document.

    Raises:
        InvalidSpec: with one problem per wrong field and "did you mean" for unknown keys.
    """
    if not isinstance(document, dict):
        raise InvalidSpec("a job specification is a mapping of keys to values")
    try:
        return JobSpec.model_validate(document)
    except ValidationError as error:
        raise invalid_spec(error) from None


def invalid_spec(error: ValidationError) -> InvalidSpec:
    """Turn pydantic's errors into ours: pointers, plain words, suggestions."""
    problems = tuple(_problem(detail) for detail in error.errors())
    first = problems[0]
    where = first.pointer.lstrip("/").replace("/", ".") or "specification"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidSpec(f"{where}: {first.detail}{more}", problems=problems)


def check_reference(text: str) -> None:
    """Raise ``ValueError`` unless ``text`` is ``blob:sha256:<hex>`` or ``node:<absolute path>``."""
    if text.startswith("node:"):
        path = text.removeprefix("node:")
        if path.startswith("/") and ".." not in path.split("/") and "\0" not in path:
            return
    digest = text.removeprefix("blob:sha256:")
    if digest != text and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
        return
    raise ValueError(
        "must be blob:sha256:<64 hex digits> or node:</absolute/path>; "
        "the CLI and SDK turn local paths into blobs"
    )


def memory_range(text: str) -> tuple[int | None, int | None]:
    """Parse ``24GB..80GB`` into (minimum, maximum) bytes; a single size is a minimum.

    Raises:
        ValueError: not a size or a range, or its ends are in the wrong order.
    """
    low, dots, high = text.partition("..")
    minimum = parse_bytes(low) if low.strip() else None
    maximum = parse_bytes(high) if high.strip() else None
    if minimum is None and maximum is None:
        raise ValueError(f"{text!r} names no size; write for example 24GB..80GB")
    if dots and minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError(f"{text!r} starts above its end")
    return minimum, maximum


def _is_env_name(name: str) -> bool:
    return (
        0 < len(name) <= 64
        and name.isascii()
        and name.upper() == name
        and (name.replace("_", "a").isalnum() and not name[0].isdigit())
    )


def _problem(detail: Any) -> FieldProblem:  # noqa: ANN401 - pydantic's ErrorDetails
    location = [str(part) for part in detail["loc"]]
    pointer = "".join(f"/{part}" for part in location)
    if detail["type"] == "extra_forbidden":
        return FieldProblem(pointer=pointer, detail=_unknown_key(location))
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "missing":
        message = "is required"
    elif detail.get("input") is not None and not isinstance(detail["input"], dict | list):
        message = f"{message} (got {detail['input']!r:.80})"
    return FieldProblem(pointer=pointer, detail=message)


def _unknown_key(location: list[str]) -> str:
    model: Any = JobSpec
    for part in location[:-1]:
        annotation = model.model_fields[part].annotation
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next(o for o in options if isinstance(o, type) and issubclass(o, Wire))
    close = difflib.get_close_matches(location[-1], model.model_fields, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(model.model_fields)}"
    return f"unknown key {location[-1]!r}; {hint}"
