"""Turn domain values into JSON-ready dicts and back, for the store and the wire."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # building one is slow


def to_json(value: object) -> dict[str, Any]:
    """Return a frozen domain value as a JSON-ready dict."""
    dumped: dict[str, Any] = _adapter(value.__class__).dump_python(value, mode="json")
    return dumped


def from_json(kind: type[T], data: Mapping[str, Any]) -> T:
    """Build a domain value from a JSON-ready dict; unknown keys of newer writers are dropped.

    Raises:
        pydantic.ValidationError: the data is not a ``kind``.
    """
    value: T = _adapter(kind).validate_python(data, extra="ignore")
    return value
