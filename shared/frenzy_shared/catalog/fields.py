"""Read single fields of a model's configuration, with errors that name the field."""

from collections.abc import Mapping
from typing import Any, Final

from frenzy_shared.errors import FieldProblem, InvalidModelConfig

MAX_DIMENSION: Final = 2**24  # widest field of any published model is below 2**18
MAX_LAYERS: Final = 4096
ACTIVATIONS: Final = (
    "gelu_new",
    "gelu",
    "gelu_fast",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "relu",
    "relu2",
    "silu",
    "swish",
    "tanh",
)


def size(
    config: Mapping[str, Any], *names: str, default: int | None = None, limit: int = MAX_DIMENSION
) -> int:
    """Read the first of ``names`` that is set; later names are transformers' aliases."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise problem(name, f"is {str(value)[:40]!r}", "give a whole number")
        if not 1 <= value <= limit:
            raise problem(name, f"is {str(value)[:24]}", f"give a number from 1 to {limit}")
        return value
    if default is None:
        raise problem(names[0], "is required", "give the model's whole config.json")
    return default


def flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Read a truth value."""
    value = config.get(name, default)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise problem(name, f"is {str(value)[:40]!r}", "give true or false")
    return value


def number(config: Mapping[str, Any], name: str, default: float | None) -> float | None:
    """Read a positive number, or null where that means that there is none."""
    value = config.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise problem(name, f"is {str(value)[:40]!r}", "give a positive number")
    return float(value)


def activation(config: Mapping[str, Any], name: str, default: str) -> str:
    """Read the name of an activation function."""
    value = config.get(name, default)
    if value not in ACTIVATIONS:
        raise problem(
            name, f"{str(value)[:40]!r} is not supported", f"use one of: {', '.join(ACTIVATIONS)}"
        )
    return str(value)


def divides(part: int, whole: int, part_name: str, whole_name: str) -> None:
    """Refuse a ``whole`` that is not a multiple of its ``part``."""
    if whole % part:
        raise problem(
            whole_name if whole_name.endswith(("size", "embd")) else part_name,
            f"{whole_name} ({whole}) is not divisible by {part_name} ({part})",
            f"choose {part_name} so that it divides {whole_name}",
        )


def problem(field: str, detail: str, remedy: str = "") -> InvalidModelConfig:
    """Return the error of a field: what is wrong, and what to do about it."""
    text = f"{detail}; {remedy}" if remedy else detail
    return InvalidModelConfig(
        f"model.{field}: {text}",
        problems=[FieldProblem(pointer=f"/model/{field}", detail=text)],
        suggestions=[remedy] if remedy else (),
    )
