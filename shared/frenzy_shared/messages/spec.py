"""The job specification: what a user writes. Flat, snake_case, unknown keys refused."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from frenzy_shared.domain.continuation import Elasticity
from frenzy_shared.domain.eligibility import NodePins
from frenzy_shared.domain.ids import is_name
from frenzy_shared.domain.plan import ActivationCheckpointing, Offload, Precision
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.arrays import Array
from frenzy_shared.messages.base import TextOrMapping, Wire
from frenzy_shared.messages.wording import invalid_spec
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
    # The texts under the fields are what the schema and docs/reference/job.md say.
    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class Checkpointing(_Section):
    """When to save, how many to keep, and whether to resume from the job's own checkpoints."""

    every_steps: Size | None = None
    """Save every so many optimizer steps. Without it: at the end, and when asked to stop."""
    keep: Annotated[int, Field(ge=1, le=100)] = 2
    """How many of the newest checkpoints stay on disk."""
    resume: bool = True
    """Whether a new attempt goes on from the last checkpoint."""


class Entrypoint(_Section):
    """A user's own script, run once per rank as under torchrun."""

    script: str
    """A .py file, by its path inside `workdir`."""
    args: Annotated[tuple[str, ...], Field(max_length=256, strict=False)] = ()
    """Arguments of the script."""

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

    gpu_memory: str | None = None
    """GPU memory: "24GB..80GB", "24GB..", "..80GB", or a minimum such as "24GB"."""
    kinds: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """GPU kinds that may be used, as `frenzy nodes` shows them."""
    exclude_kinds: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """GPU kinds that must not be used."""
    nodes: Annotated[tuple[str, ...], Field(strict=False, max_length=256)] = ()
    """Nodes that may be used; the job waits while they are away."""
    exclude_nodes: Annotated[tuple[str, ...], Field(strict=False, max_length=256)] = ()
    """Nodes that must not be used."""
    node_labels: Annotated[dict[str, str], Field(max_length=64)] = {}  # noqa: RUF012 - copied
    """Labels that every node of the job must have, as `frenzy nodes -o json` shows them."""
    gpus: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Exactly so many GPUs."""
    max_gpus: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """At most so many GPUs."""
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    """ZeRO stage: 0 to 3."""
    tensor: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Tensor-parallel degree."""
    pipeline: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Pipeline-parallel degree."""
    micro_batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Sequences per GPU in one forward pass."""
    offload: Annotated[Offload, Field(strict=False)] | None = None
    """What the nodes' RAM holds: none; `optimizer` (master weights and Adam's moments, ZeRO 1 to
    3); `parameters` (the weights too, ZeRO-3). Without it: what is needed when nothing else fits.
    """

    @property
    def node_pins(self) -> NodePins:
        """Return what is fixed about nodes."""
        labels = tuple(sorted(self.node_labels.items()))
        return NodePins(nodes=self.nodes, exclude=self.exclude_nodes, labels=labels)

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

    @model_validator(mode="after")
    def _stage_offloads(self) -> Self:
        least = {Offload.OPTIMIZER: 1, Offload.PARAMETERS: 3}.get(self.offload or Offload.NONE, 0)
        if self.zero_stage is not None and self.zero_stage < least:
            raise ValueError(
                f"offload: {self.offload} needs zero_stage {least} or more, not {self.zero_stage}"
            )
        return self

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        for allowed, left_out, what in (
            (self.kinds, self.exclude_kinds, "kinds"),
            (self.nodes, self.exclude_nodes, "nodes"),
        ):
            if allowed and set(allowed) <= set(left_out):
                raise ValueError(f"exclude_{what} leaves nothing of {what}: {', '.join(allowed)}")
        return self


class Lora(_Section):
    """Low-rank adapters beside a model's frozen matrices, for `method: lora`."""

    rank: Annotated[int, Field(ge=1, le=4096)] = 16
    """Width of an adapter."""
    alpha: Annotated[float, Field(gt=0, le=65_536, strict=False)] = 32.0
    """An adapter counts alpha / rank times."""
    dropout: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    """Share of an adapter's inputs that is set to zero in training."""
    target_modules: Annotated[tuple[str, ...], Field(strict=False, max_length=16)] = ()
    """Names of the adapted matrices in the model's code. Without them: all of every block."""


class Retry(_Section):
    """How often a failing job is tried again."""

    max_retries: Annotated[int, Field(ge=0, le=100)] = 2
    """New attempts after a failure of the program. Lost nodes do not count."""
    max_oom_retries: Annotated[int, Field(ge=0, le=10)] = 3
    """New plans after running out of GPU memory."""


class JobSpec(_Section):
    """What to train.

    Only ``model`` + ``data`` (or ``entrypoint``) + ``global_batch_size`` are needed.

    ``model`` is a preset's name or the contents of a Hugging Face ``config.json``.
    ``data`` is ``blob:sha256:<hex>`` (what the client made of a local path) or
    ``node:<absolute path>`` (already on every node); ``workdir`` and ``tokenizer`` likewise.
    """

    spec_version: Literal[1] = 1
    """Version of this format."""
    name: str | None = None
    """1-63 characters of a-z, 0-9 and "-". Without it: the name of the model."""
    model: TextOrMapping | None = None
    """A preset, the path of a Hugging Face `config.json`, or its contents as a mapping."""
    method: Literal["full", "lora"] = "full"
    """What is trained: all weights, or low-rank adapters beside frozen ones."""
    lora: Lora | None = None
    """The adapters of `method: lora`."""
    data: str | None = None
    """A text or .jsonl file, or a folder of them; relative to the job file. `node:/path` is a
    path that every node has.
    """
    tokenizer: str | None = None
    """A `tokenizer.json`; without it every byte is a token."""
    sequence_length: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Tokens per sequence. Without it: what the model has positions for, at most 1024."""
    global_batch_size: Annotated[int, Field(ge=1, le=1_048_576)]
    """Sequences per optimizer step over all GPUs; kept exactly by every plan."""
    max_steps: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Optimizer steps. Without `max_steps` and `epochs`: one pass over the data."""
    epochs: Annotated[float, Field(gt=0, le=10**6, strict=False)] | None = None
    """Passes over the data."""
    precision: Annotated[Precision, Field(strict=False)] | None = None
    """Number format of weights and compute. Without it: bf16 where the GPU has it."""
    optimizer: Literal["adamw"] = "adamw"
    """The optimizer."""
    learning_rate: Annotated[float, Field(gt=0, le=10, strict=False)] = 3e-4
    """Peak learning rate."""
    lr_scheduler: Literal["constant", "cosine"] = "constant"
    """What the learning rate does after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Steps in which the learning rate rises from zero."""
    weight_decay: Annotated[float, Field(ge=0, le=10, strict=False)] = 0.0
    """Decoupled weight decay."""
    gradient_clipping: Annotated[float, Field(gt=0, strict=False)] | None = 1.0
    """Largest norm of the gradient; null: no clipping."""
    gradient_checkpointing: Annotated[ActivationCheckpointing, Field(strict=False)] | None = None
    """Recompute activations in backward to save memory. Without it Frenzy decides."""
    attention: Literal["eager", "sdpa"] = "sdpa"
    """Implementation of attention. An architecture without a fused one runs eager."""
    loss: Literal["auto", "full", "chunked"] = "auto"
    """The loss of all positions at once, or of some at a time, which never holds all logits.
    auto: Frenzy decides.
    """
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of the weights and of the order of the data."""
    checkpoint: Checkpointing = Checkpointing()
    """When to save and how to resume."""
    entrypoint: Entrypoint | None = None
    """A script of your own instead of the built-in trainer; runs unchanged, as under torchrun."""
    workdir: str | None = None
    """The folder that holds the script; relative to the job file. `.git`, `__pycache__` and
    `.venv` are left out; links that lead outside are refused.
    """
    elastic: Annotated[Elasticity, Field(strict=False)] | None = None
    """What a script can go on with. `fixed` (default): the same number of GPUs or not at all;
    `batch_from_plan`: it reads micro-batch and accumulation from the plan, so a restart may use
    another number; `elastic`: it also divides its data anew, so it may be resized for speed.
    The built-in trainer is elastic.
    """
    env: Annotated[dict[str, Environment], Field(max_length=256, default_factory=dict)]
    """Environment variables of the ranks."""
    secrets: Annotated[dict[str, str], Field(max_length=16, default_factory=dict)]
    """Environment variables of the ranks whose values are secrets of the project: each with the
    name of one that `frenzy secret set` keeps. Values are in no file, event or log of Frenzy.
    """
    resources: Resources = Resources()
    """Pins. Whatever is absent, Frenzy decides."""
    priority: Annotated[int, Field(ge=0, le=100)] = 50
    """0 to 100; higher goes first. A point is worth an hour of waiting."""
    depends_on: Annotated[tuple[str, ...], Field(strict=False, max_length=64)] = ()
    """Jobs of the same project, by id or name, that must succeed before this one starts. If one
    of them does not, this job is cancelled. A name stands for the newest job of that name.
    """
    depends_on_end: Literal["success", "any"] = "success"
    """`any`: start when they are over, however they ended."""
    preemptible: bool | None = None
    """Whether Frenzy may stop the job at a checkpoint for another one, or to resize it. Without
    it: yes for the built-in trainer if `checkpoint.resume`; for a script once it has reported a
    checkpoint.
    """
    array: Array | None = None
    """Many jobs from this one specification."""
    max_duration: str | None = None
    """Longest time from the first start, such as 90s, 30m, 12h or 7d."""
    retry: Retry = Retry()
    """How often a failing job is tried again."""
    labels: Annotated[dict[str, str], Field(max_length=64, default_factory=dict)]
    """Words of your own to list jobs by."""

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
            _check_env_name(name)
            if "\0" in value:
                raise ValueError(f"the value of {name!r} holds a NUL character")
        return env

    @field_validator("secrets")
    @classmethod
    def _secrets(cls, secrets: dict[str, str]) -> dict[str, str]:
        for variable, name in secrets.items():
            _check_env_name(variable)
            if not is_name(name):
                # Without what was given: it may be the secret itself.
                raise ValueError(
                    f"{variable!r} needs the name of a secret (a-z, 0-9 and '-'), not its value"
                )
        return secrets

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
        if self.entrypoint is None and self.elastic is not None:
            raise ValueError("elastic is for an entrypoint: the built-in trainer is elastic")
        if self.preemptible and not self.checkpoint.resume:
            raise ValueError(
                "preemptible: true needs checkpoint.resume: what is stopped must go on later"
            )
        if both := sorted(self.env.keys() & self.secrets.keys()):
            raise ValueError(f"{both[0]!r} is in env and in secrets: give it once")
        if self.lora is not None and self.method != "lora":
            raise ValueError("lora needs method: lora")
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
        raise invalid_spec(error, JobSpec) from None


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


def _check_env_name(name: str) -> None:
    if not _is_env_name(name):
        raise ValueError(f"{name!r} is not an environment name: A-Z, 0-9 and '_' only")
    if name in _RESERVED_ENV or name.startswith(_RESERVED_PREFIXES):
        raise ValueError(f"{name!r} is reserved: Frenzy sets it")


def _is_env_name(name: str) -> bool:
    return (
        0 < len(name) <= 64
        and name.isascii()
        and name.upper() == name
        and (name.replace("_", "a").isalnum() and not name[0].isdigit())
    )
