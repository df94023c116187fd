"""Calls of the JetStream API as plain JSON: exactly what is sent, exactly what comes back.

nats-py's models drop fields they do not know, and a drift check must see them.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from nats.errors import Error, NoRespondersError

from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.errors import StorageFull, Unavailable

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037

_PREFIX: Final = "$JS.API"
_TIMEOUT_S: Final = 5.0
_FULL: Final = frozenset({10023, 10028, 10047, 10077, 10122})  # limits, resources, max bytes


class ApiError(Unavailable):
    """JetStream answered with an error; ``number`` is its ``err_code``."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


async def call(
    connection: Connection, endpoint: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Call one JetStream endpoint, for example ``STREAM.INFO.FRENZY_EVENTS``.

    Raises:
        ApiError: the server refuses.
        StorageFull: it has no room.
        Unavailable: it cannot be reached, or JetStream is off or not ready.
    """
    client = await connection.ready(_TIMEOUT_S)
    payload = b"" if body is None else json.dumps(body).encode()
    try:
        reply = await client.request(f"{_PREFIX}.{endpoint}", payload, timeout=_TIMEOUT_S)
    except NoRespondersError:
        raise Unavailable("JetStream is switched off or not ready yet") from None
    except Error as error:
        raise Unavailable(f"NATS: {endpoint}: {error or type(error).__name__}") from error
    answer: dict[str, Any] = json.loads(reply.data)
    if "error" in answer:
        raise refusal(endpoint, answer["error"])
    return answer


def refusal(what: str, error: Mapping[str, Any]) -> Unavailable:
    """Return the exception for an error object of JetStream."""
    number = int(error.get("err_code", 0))
    text = f"JetStream: {what}: {error.get('description', 'refused')} ({number})"
    if number in _FULL:
        return StorageFull(
            text, suggestions=("raise the stream's max_bytes or max_file_store, or free space",)
        )
    return ApiError(text, number)
