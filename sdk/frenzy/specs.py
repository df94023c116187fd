"""Job specifications as people write them: with paths of this machine.

A document becomes a wire ``JobSpec`` in two steps: ``load`` + ``localize`` find the local paths
and validate everything else (no file is packed for a specification that is wrong), then the paths
are packed and replaced by digests (``frenzy.uploads``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from pydantic import ValidationError

from frenzy import catalogue
from frenzy_shared.errors import FieldProblem, InvalidModelConfig, InvalidSpec, wrong_field
from frenzy_shared.messages import estimate
from frenzy_shared.messages import spec as wire
from frenzy_shared.messages.wording import invalid_spec
from frenzy_shared.messages.yaml import load_yaml

_PATH_FIELDS: Final = ("data", "tokenizer", "workdir")
_REFERENCE: Final = ("blob:", "node:")
_PLACEHOLDER: Final = "blob:sha256:" + "0" * 64
_MAX_SPEC_BYTES: Final = 1 << 20
_MAX_CONFIG_BYTES: Final = 1 << 20


class JobSpec(wire.JobSpec):
    """What to train. ``data``, ``tokenizer`` and ``workdir`` may be paths of this machine.

    Only ``model`` + ``data`` (or ``entrypoint``) + ``global_batch_size`` are needed; everything
    else is derived and can be pinned. ``model`` is a preset's name, the path of a Hugging Face
    ``config.json``, or its contents.
    """

    @classmethod
    def _reference(cls, text: str | None) -> str | None:
        if text is not None and text.startswith(_REFERENCE):
            wire.check_reference(text)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpec:
    """A checked specification. ``paths`` are still to be packed, by field."""

    document: dict[str, Any]
    paths: Mapping[str, Path]

    def preview(self) -> wire.JobSpec:
        """Return the wire specification with placeholders: enough for planning."""
        return wire.parse_spec(self.document)

    def finish(self, references: Mapping[str, str]) -> wire.JobSpec:
        """Return the wire specification with a reference for every path."""
        return wire.parse_spec({**self.document, **references})


SpecSource: TypeAlias = LocalSpec | wire.JobSpec | Mapping[str, Any] | str | Path


def read(source: SpecSource, base: Path | None = None) -> LocalSpec:
    """Read and check a specification; relative paths start at its file's folder.

    Raises:
        InvalidSpec: naming the field and what to do.
    """
    if isinstance(source, LocalSpec):
        return source
    if isinstance(source, wire.JobSpec):
        document, folder = source.model_dump(mode="json", exclude_unset=True), Path.cwd()
    elif isinstance(source, Mapping):
        document, folder = dict(source), Path.cwd()
    else:
        path = Path(source)
        document, folder = load_yaml(_read_file(path), str(path)), path.resolve().parent
    return localize(document, base or folder)


ALONE: Final = {"gradient_accumulation_steps": 1}  # what fixes the batch of a model alone


def model_alone(model: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the least specification of a model: one sequence at a time."""
    return {"model": model, "data": "node:/any", "global_batch_size": 1}


def exact(
    source: SpecSource, overrides: Mapping[str, Any]
) -> tuple[wire.JobSpec, estimate.Overrides]:
    """Return the specification and the changes that say what is to be estimated.

    A model alone is one GPU with one sequence at a time, unless overrides say otherwise.

    Raises:
        InvalidSpec: naming the field and what to do.
    """
    changes = dict(overrides)
    if isinstance(source, str) and not source.endswith((".yaml", ".yml")):
        source, changes = model_alone(source), {**ALONE, **changes}
    try:
        checked = estimate.Overrides.model_validate(changes)
    except ValidationError as error:
        raise invalid_spec(error, estimate.Overrides) from None
    return read(source).preview(), checked


def localize(document: Mapping[str, Any], base: Path) -> LocalSpec:
    """Find the local paths of a document and check everything that needs no packing."""
    result = dict(document)
    paths: dict[str, Path] = {}
    for name in _PATH_FIELDS:
        text = result.get(name)
        if isinstance(text, str) and not text.startswith(_REFERENCE):
            paths[name] = _existing(name, text, base)
            result[name] = _PLACEHOLDER
    model = result.get("model")
    if isinstance(model, str) and model in catalogue.own().models:
        result["model"] = catalogue.own().models[model]  # no server knows this name
    elif isinstance(model, str) and _is_path(model, base):
        result["model"] = _model_config(_existing("model", model, base))
    wire.parse_spec(result)
    return LocalSpec(document=result, paths=paths)


def _read_file(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_SPEC_BYTES:
            raise InvalidSpec(f"{path} is over 1 MiB; a specification is a small YAML file")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidSpec(f"no such file: {path}") from None
    except UnicodeDecodeError:
        raise InvalidSpec(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise InvalidSpec(f"cannot read {path}: {error.strerror}") from None


def _existing(name: str, text: str, base: Path) -> Path:
    path = base / Path(text).expanduser()
    try:
        path.lstat()
    except OSError as error:
        detail = f"no such file or folder: {path}"
        if not isinstance(error, FileNotFoundError):
            detail = f"cannot read {path}: {error.strerror}"
        raise wrong_field(name, detail) from None
    except ValueError:
        raise wrong_field(name, "a path must not hold NUL characters") from None
    return path


def _is_path(model: str, base: Path) -> bool:
    return "/" in model or model.endswith(".json") or (base / model / "config.json").is_file()


def _model_config(path: Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _MAX_CONFIG_BYTES:
            raise _bad_config(f"{file} is over 1 MiB; name a Hugging Face config.json")
        config = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise _bad_config(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _bad_config(f"{file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise _bad_config(f"{file} is not a JSON object")
    return config


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number that JSON has")


def _bad_config(detail: str) -> InvalidModelConfig:
    problem = FieldProblem(pointer="/model", detail=detail)
    return InvalidModelConfig(f"model: {detail}", problems=(problem,))
