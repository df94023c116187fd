"""Read JSON that strangers send: strictly, within limits, and saying where it is wrong."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from frenzy_shared.errors import BadRequest, FieldProblem, InvalidSpec

MAX_DEPTH: Final = 32
MAX_INTEGER: Final = 2**53 - 1  # beyond it, JSON readers that use doubles round

# Whole strings are skipped; an unterminated one runs to the end, so that this stays linear.
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a request body.

    Raises:
        BadRequest: not UTF-8, not JSON, nested too deeply, or a key twice; says where.
        InvalidSpec: a number or text that JSON cannot carry safely; names the field.
    """
    text = _decode(body)
    _check_depth(text)
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"the body is not valid JSON: {error.msg} at line {error.lineno} "
            f"column {error.colno} (character {error.pos})"
        ) from None
    except ValueError:  # more digits than Python converts
        raise BadRequest("the body holds an integer with thousands of digits") from None
    problems = tuple(_unsafe_values(document, ""))
    if problems:
        first = problems[0]
        where = first.pointer.lstrip("/").replace("/", ".") or "the body"
        raise InvalidSpec(f"{where}: {first.detail}", problems=problems)
    return document


def _decode(body: bytes) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: byte {error.start} is wrong") from None
    if text.startswith("\ufeff"):
        raise BadRequest("the body starts with a byte order mark; send plain UTF-8")
    if not text.strip():
        raise BadRequest("the body is empty; send JSON")
    return text


def _check_depth(text: str) -> None:
    depth = 0
    for match in _STRUCTURE.finditer(text):
        found = match[0]
        if found in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise BadRequest(
                    f"the body is nested deeper than {MAX_DEPTH} levels at character "
                    f"{match.start()}"
                )
        elif found in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise BadRequest(f"the body holds the key {key[:80]!r} twice in one object")
        mapping[key] = value
    return mapping


def _unsafe_values(value: object, pointer: str) -> Iterator[FieldProblem]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unsafe_text(key, pointer)
            yield from _unsafe_values(item, f"{pointer}/{_escape(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unsafe_values(item, f"{pointer}/{index}")
    elif isinstance(value, str):
        yield from _unsafe_text(value, pointer)
    elif isinstance(value, float) and not float("-inf") < value < float("inf"):
        yield FieldProblem(pointer=pointer, detail=f"must be a finite number (got {value})")
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        detail = f"must be between -(2^53 - 1) and 2^53 - 1 (got {value!s:.40})"
        yield FieldProblem(pointer=pointer, detail=detail)


def _unsafe_text(text: str, pointer: str) -> Iterator[FieldProblem]:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        yield FieldProblem(pointer=pointer, detail="holds half of a surrogate pair")


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1").encode("utf-8", "replace").decode()
