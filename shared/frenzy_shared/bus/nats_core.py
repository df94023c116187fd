"""Core subscriptions that stop without cutting off a running handler."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error

from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.bus.port import Handler, Message
from frenzy_shared.errors import Unavailable

log = logging.getLogger(__name__)

Respond = Callable[[Message, Msg], Awaitable[None]]

_CONCURRENT_ANSWERS: Final = 16


class CoreSubscription:
    """Runs a handler for one message after the other, or a responder for several at once."""

    def __init__(
        self,
        connection: Connection,
        *,
        handler: Handler | None = None,
        responder: Respond | None = None,
    ) -> None:
        self._connection = connection
        self._handler = handler
        self._responder = responder
        self._places = asyncio.Semaphore(_CONCURRENT_ANSWERS if responder else 1)
        self._running: set[asyncio.Future[None]] = set()
        self._stopping = False
        self._stop: Callable[[], Awaitable[None]] | None = None

    async def start(self, subject: str, queue: str) -> None:
        """Listen."""
        client = await self._connection.ready(5.0)
        try:
            subscription = await client.subscribe(subject, queue=queue, cb=self._receive)
            for _ in range(2):  # nats-py writes the PING past a SUB that waits for its flusher,
                await client.flush(5)  # so only the second PONG says that the server knows it
        except Error as error:
            raise Unavailable(f"subscribing {subject}: {error}") from error
        self._stop = subscription.unsubscribe

    async def stop(self) -> None:
        """Stop listening and wait for what is running."""
        self._stopping = True
        while self._running:
            await asyncio.wait(set(self._running))
        if self._stop is not None:
            stop, self._stop = self._stop, None
            with contextlib.suppress(Error):  # closed: the subscription ended with it
                await stop()

    async def _receive(self, raw: Msg) -> None:
        await self._places.acquire()
        if self._stopping:
            self._places.release()
            return
        task = asyncio.ensure_future(self._run(raw))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Future[None]") -> None:
        self._running.discard(task)
        self._places.release()

    async def _run(self, raw: Msg) -> None:
        message = Message(subject=raw.subject, payload=raw.data, headers=raw.headers or {})
        try:
            if self._handler is not None:
                await self._handler(message)
            if self._responder is not None:
                await self._responder(message, raw)
        except Exception:
            log.exception("handling %s failed", message.subject)
