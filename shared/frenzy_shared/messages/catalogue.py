"""A catalogue file of one's own: GPUs and models that the shipped catalogue lacks, or has wrong.

::

    gpus:
      - name: Accelerator 48GB            # as the driver calls it, or give a pattern
        memory: 48GiB
        compute_capability: "8.6"
        tensor_tflops: 150
        fp32_tflops: 37
        bandwidth_gb_s: 900
    models:
      our-3b: {model_type: llama, hidden_size: 2560, ...}    # a Hugging Face configuration
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, ValidationError, field_validator

from frenzy_shared.catalog.gpus import GB, TERA, GpuModel, OwnGpu
from frenzy_shared.catalog.models import architecture_from_config
from frenzy_shared.errors import FieldProblem, InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.wording import invalid_spec
from frenzy_shared.messages.yaml import load_yaml
from frenzy_shared.units import parse_bytes

_FIRST_WITH_BF16: Final = 8  # compute capability, major
_Rate = Annotated[float, Field(gt=0, le=1e6)]


class _Section(Wire):
    model_config = ConfigDict(use_attribute_docstrings=True)


class GpuEntry(_Section):
    """One GPU model. Rates are dense peaks; links are one direction."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Name in plans, and what the driver calls it unless there is a pattern."""
    pattern: Annotated[str | None, Field(max_length=200)] = None
    """Regular expression of the driver's whole name, without the vendor in front."""
    memory: str
    """Size, such as 48GiB; for planning what the node measures counts instead."""
    compute_capability: str = ""
    """Such as 8.6."""
    tensor_tflops: _Rate
    """In bf16 or fp16 with fp32 accumulation."""
    fp32_tflops: _Rate
    """Without tensor cores."""
    tf32_tflops: _Rate | None = None
    """With tensor cores, for scripts that allow it."""
    bandwidth_gb_s: _Rate
    """Of its memory."""
    link_gb_s: _Rate | None = None
    """To GPUs of its node; without: the host's link."""
    host_link_gb_s: _Rate = 16.0
    """To the host."""
    board_power_w: _Rate = 300.0
    """For estimates of energy."""
    bf16: bool | None = None
    """Whether it computes in bf16; without: from compute capability 8.0 on."""

    @field_validator("memory")
    @classmethod
    def _size(cls, text: str) -> str:
        parse_bytes(text)
        return text

    @field_validator("pattern")
    @classmethod
    def _expression(cls, text: str | None) -> str | None:
        try:
            re.compile(text or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return text

    def own(self) -> OwnGpu:
        """Return it as the catalogue holds it."""
        host_link = self.host_link_gb_s * GB
        major = self.compute_capability.partition(".")[0]
        modern = major.isdigit() and int(major) >= _FIRST_WITH_BF16
        gpu = GpuModel(
            name=self.name,
            vendor="",
            compute_capability=self.compute_capability,
            memory_bytes=parse_bytes(self.memory),
            bf16=modern if self.bf16 is None else self.bf16,
            fp16=True,
            tensor_flops=self.tensor_tflops * TERA,
            fp32_flops=self.fp32_tflops * TERA,
            bandwidth=self.bandwidth_gb_s * GB,
            link=self.link_gb_s * GB if self.link_gb_s else host_link,
            host_link=host_link,
            board_power_w=self.board_power_w,
            tf32_flops=self.tf32_tflops * TERA if self.tf32_tflops else None,
            sources="your catalogue",
        )
        return gpu, re.compile(self.pattern or re.escape(self.name), re.IGNORECASE)


class Catalogue(_Section):
    """GPUs and models of one's own. They go before what is shipped."""

    gpus: tuple[GpuEntry, ...] = ()
    """GPU models."""
    models: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - pydantic copies defaults
    """Hugging Face configurations by the name that jobs use."""

    @property
    def own_gpus(self) -> tuple[OwnGpu, ...]:
        """Return the GPUs as the catalogue holds them."""
        return tuple(entry.own() for entry in self.gpus)


def read_catalogue(path: Path) -> Catalogue:
    """Read a catalogue file and check every entry.

    Raises:
        InvalidSpec: the file cannot be read, or naming the entry that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"catalogue {path}: {error}") from None
    try:
        found = Catalogue.model_validate(load_yaml(text, str(path)))
        _check_models(found.models)
    except ValidationError as error:
        wrong = invalid_spec(error, Catalogue)
        raise InvalidSpec(f"{path}: {wrong.message}", problems=wrong.problems) from None
    except InvalidModelConfig as error:
        raise InvalidSpec(
            f"{path}: {error.message}", problems=error.problems, suggestions=error.suggestions
        ) from None
    return found


def _check_models(models: Mapping[str, Mapping[str, Any]]) -> None:
    for name, config in models.items():
        try:
            architecture_from_config(config)
        except InvalidModelConfig as error:
            problems = [
                FieldProblem(
                    pointer=problem.pointer.replace("/model", f"/models/{name}", 1),
                    detail=problem.detail,
                )
                for problem in error.problems
            ]
            message = error.message.replace("model.", f"models.{name}.", 1)
            raise InvalidModelConfig(
                message, problems=problems, suggestions=error.suggestions
            ) from None
