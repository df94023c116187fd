"""From pydantic's errors to ours: pointers, plain words, suggestions. Pure."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from frenzy_shared.errors import FieldProblem, InvalidSpec
from frenzy_shared.messages.base import Wire

_KEY: Final = "[key]"  # pydantic's last part of a location for a wrong key of a mapping
_SHOWN: Final = 80  # characters of what was given

# What a value must be, by the end of pydantic's name for what it is not.
_KINDS: Final[Mapping[str, str]] = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}


def invalid_spec(error: ValidationError, kind: type[Wire]) -> InvalidSpec:
    """Turn pydantic's errors about a ``kind`` into ours."""
    details = [detail for detail in error.errors() if not _follows_from_others(detail)]
    problems = tuple(_problem(detail, kind) for detail in details)
    where = ".".join(_location(details[0]))[:_SHOWN] or "specification"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidSpec(f"{where}: {problems[0].detail}{more}", problems=problems)


def pointer_to(*location: int | str) -> str:
    """Return the JSON pointer (RFC 6901) to a place in a document."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in location)
    return "".join(f"/{part}" for part in parts)


def plain_words(detail: ErrorDetails) -> str:
    """Say what is wrong with a value, and what was given."""
    name, given = detail["type"], detail.get("input")
    if name == "missing":
        return "is required"
    if name == "invalid_key" or detail["loc"][-1:] == (_KEY,):
        return f"keys must be text (got {_shown(given)})"
    if name in _KINDS:
        return f"{_KINDS[name]}{_echo(detail)}"
    if name in ("too_short", "too_long") and isinstance(given, list | tuple | dict | set):
        return f"{_amount(name, detail)} (has {len(given)})"
    message = detail["msg"].removeprefix("Value error, ")
    for theirs in ("Input should ", "String should "):
        message = message.replace(theirs, "must ")
    return f"{message}{_echo(detail) if not isinstance(given, list | dict) else ''}"


def _follows_from_others(detail: ErrorDetails) -> bool:
    """Tell whether a list is said to be too short only because its values are wrong."""
    given = detail["input"]
    return (
        detail["type"] == "too_short"
        and isinstance(given, list | tuple)
        and len(given) >= detail["ctx"]["min_length"]
    )


def _problem(detail: ErrorDetails, kind: type[Wire]) -> FieldProblem:
    location = _location(detail)
    unknown = detail["type"] == "extra_forbidden"
    words = _unknown_key(location, kind) if unknown else plain_words(detail)
    return FieldProblem(pointer=pointer_to(*location), detail=words)


def _location(detail: ErrorDetails) -> list[str]:
    location = [str(part) for part in detail["loc"]]
    return location[:-1] if location[-1:] == [_KEY] else location


def _amount(name: str, detail: ErrorDetails) -> str:
    bound, word = ("min_length", "least") if name == "too_short" else ("max_length", "most")
    count = detail["ctx"][bound]
    return f"must have at {word} {count} item{'' if count == 1 else 's'}"


def _echo(detail: ErrorDetails) -> str:
    """Return what was given, unless it may be the secret itself."""
    return "" if "secrets" in detail["loc"] else f" (got {_shown(detail.get('input'))})"


def _shown(given: Any) -> str:  # noqa: ANN401 - whatever a document holds
    """Return a value as its document says it, shortened."""
    if given is None or isinstance(given, bool):
        return {None: "null", True: "true", False: "false"}[given]
    if isinstance(given, dict):
        return "a mapping"
    if isinstance(given, list | tuple):
        return "a list"
    return f"{given!r:.{_SHOWN}}"


def _unknown_key(location: list[str], model: Any) -> str:  # noqa: ANN401 - a class of Wire
    for part in location[:-1]:
        if part not in model.model_fields:
            continue  # a key of a mapping
        annotation = model.model_fields[part].annotation
        options = [annotation, *getattr(annotation, "__args__", ())]
        model = next(o for o in options if isinstance(o, type) and issubclass(o, Wire))
    key = location[-1][:_SHOWN]
    close = difflib.get_close_matches(key, model.model_fields, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(model.model_fields)}"
    return f"unknown key {key!r}; {hint}"
