"""Follow a stream: what is stored after a sequence, then what comes, across server restarts.

Each connection gets an ephemeral pull consumer that starts after the last message handed on.
The server forgets it on a restart and may have sent messages into a broken connection, so any
doubt (a lost pull, a gap in the consumer's own numbering) leads to a fresh one. nats-py's
ordered consumers promise the same and were measured silent for seconds after a restart.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

from nats.errors import Error

from frenzy_shared.bus.nats_api import STREAM_NOT_FOUND, ApiError, call
from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.bus.nats_pull import Puller, PullLost, to_message
from frenzy_shared.bus.port import Message
from frenzy_shared.errors import Unavailable

log = logging.getLogger(__name__)

_BATCH: Final = 256
_IDLE_S: Final = 1.0
_FORGET_S: Final = 30
_PAUSE_S: Final = 0.5


async def follow(
    connection: Connection, stream: str, filter_subject: str, after_sequence: int
) -> AsyncGenerator[Message | None, None]:
    """Yield matching messages in order, and None after each second without one.

    Raises:
        Unavailable: the stream does not exist.
    """
    position = after_sequence
    while True:
        try:
            consumer = await _create(connection, stream, filter_subject, position + 1)
            async with (
                _forgotten(connection, stream, consumer),
                Puller(connection, stream, consumer, acknowledged=False) as puller,
                contextlib.aclosing(_pull(puller)) as messages,
            ):
                async for message in messages:
                    position = position if message is None else message.sequence
                    yield message
        except (PullLost, Unavailable, Error) as error:
            if isinstance(error, ApiError) and error.number == STREAM_NOT_FOUND:
                raise
            log.info("reading %s: %s; resuming after %d", stream, error, position)
            yield None
            await asyncio.sleep(_PAUSE_S)


@contextlib.asynccontextmanager
async def _forgotten(
    connection: Connection, stream: str, consumer: str
) -> AsyncGenerator[None, None]:
    """Delete the consumer at the end; where that fails, the server does after a while."""
    try:
        yield
    finally:
        with contextlib.suppress(Error):
            await connection.client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}")


async def _pull(puller: Puller) -> AsyncGenerator[Message | None, None]:
    now = asyncio.get_running_loop().time
    expected, last = 1, now()
    while True:
        async with contextlib.aclosing(puller.pull(_BATCH, _IDLE_S)) as batch:
            async for raw in batch:
                if raw.metadata.sequence.consumer != expected:
                    raise PullLost("a gap in the consumer's sequence")
                expected += 1
                yield to_message(raw)
                last = now()
        if now() - last > _IDLE_S * 0.9:
            yield None


async def _create(
    connection: Connection, stream: str, filter_subject: str, start_sequence: int
) -> str:
    name = f"read-{secrets.token_hex(8)}"
    config: dict[str, Any] = {
        "name": name,
        "filter_subject": filter_subject,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start_sequence,
        "ack_policy": "none",
        "replay_policy": "instant",
        "inactive_threshold": _FORGET_S * 10**9,
        "mem_storage": True,
        "num_replicas": 1,
    }
    await call(
        connection,
        f"CONSUMER.CREATE.{stream}.{name}.{filter_subject}",
        {"stream_name": stream, "config": config},
    )
    return name
