"""How stores write what they hold: JSON texts, page tokens, outbox ids."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json as parse_json
from pydantic_core import to_json as dump_json

from frenzy_shared.errors import BadRequest, SafeMode
from frenzy_shared.state.port import Json, OutboxEntry, Result, Status

MAX_PAGE: Final = 1000
_PAGE_TOKEN: Final = re.compile(r"before-([1-9][0-9]{0,15})")


def dumps(value: object) -> str:
    """Return JSON text; NaN and infinities become null, as on the wire."""
    return dump_json(value, inf_nan_mode="null").decode()


def loads(text: str | bytes) -> Any:  # noqa: ANN401 - JSON holds anything
    """Read JSON text that a store wrote."""
    return parse_json(text)


def texts(record: Json) -> dict[str, str]:
    """Return each field as JSON text, the form in which records and patches are stored."""
    return {name: dumps(value) for name, value in record.items()}


def message_id(entity_id: str, version: int, index: int) -> str:
    """Return the id under which one of a change's messages is published."""
    return f"{entity_id}:{version}:{index}"


def token_before(sequence: int) -> str:
    """Return the token for the jobs that arrived before ``sequence``."""
    return f"before-{sequence}"


def page_start(token: str) -> int | None:
    """Return the sequence that a page starts below; None for the first page.

    Raises:
        BadRequest: the token was not made by ``token_before``.
    """
    if not token:
        return None
    match = _PAGE_TOKEN.fullmatch(token)
    if match is None:
        raise BadRequest(
            f"page token {token[:80]!r} was not made by this server",
            suggestions=("use next_page_token of the last answer, or leave it out",),
        )
    return int(match[1])


def page_limit(page_size: int) -> int:
    """Return how many jobs a page holds.

    Raises:
        BadRequest: fewer than one is asked for.
    """
    if page_size < 1:
        raise BadRequest(f"page_size is {page_size}; it must be at least 1")
    return min(page_size, MAX_PAGE)


def carries(record: Json, labels: Mapping[str, str]) -> bool:
    """Tell whether a job's record has all ``labels``."""
    held: dict[str, str] = dict(record.get("labels", ()))
    return labels.items() <= held.items()


def in_safe_mode(why: str) -> SafeMode:
    """Return the error of a change that came in SAFE MODE."""
    return SafeMode(
        f"the store is in SAFE MODE: {why}",
        suggestions=("an administrator puts it right: frenzy admin reconcile",),
    )


def call_result(reply: Sequence[Any]) -> Result:
    """Return the answer that ``functions.lua`` gave to a change.

    Raises:
        SafeMode: it was refused because the store's history went backwards.
    """
    status, version, id_, detail, epoch = reply
    if status == Status.SAFE_MODE:
        raise in_safe_mode(detail)
    return Result(
        status=Status(status), version=int(version), id=id_, detail=detail, epoch=int(epoch)
    )


def outbox_entry(cursor: str, stored: Mapping[str, str]) -> OutboxEntry:
    """Read an entry as ``functions.lua`` posted it."""
    return OutboxEntry(
        cursor=cursor,
        message_id=stored["message_id"],
        subject=stored["subject"],
        type=stored["type"],
        entity=stored["entity"],
        version=int(stored["version"]),
        time_ms=int(stored["time_ms"]),
        data=loads(stored["data"]),
        record=loads(stored["record"]),
        traceparent=stored["traceparent"],
        history=stored.get("history", ""),
    )
