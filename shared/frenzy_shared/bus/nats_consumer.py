"""A durable's messages, one at a time, until each is handled, dead-lettered or given back.

One message per pull: no replica sits on work that another could do, and a replica that dies
delays one message by ``ack_wait``, not a batch. Replicas of a durable run side by side, so two
messages may be handled at once, and a redelivered one comes after younger ones: handlers are
idempotent and decide by versions. Within a replica the order is the stream's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from nats.aio.msg import Msg
from nats.errors import Error

from frenzy_shared.bus.delivery import (
    MAX_DELIVERIES,
    DeadLetter,
    dead_letter,
    redelivery_delay_s,
)
from frenzy_shared.bus.nats_api import CONSUMER_NOT_FOUND, ApiError, call
from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.bus.nats_pull import Puller, PullLost, to_message
from frenzy_shared.bus.port import Handler, Message, Poison
from frenzy_shared.errors import FrenzyError, Misconfigured, PayloadTooLarge, Unavailable

log = logging.getLogger(__name__)

Bury = Callable[[DeadLetter], Awaitable[None]]

ACK_WAIT_S: Final = 30.0
_EXPIRES_S: Final = 5.0
_PAUSE_S: Final = 0.5


class DurableConsumer:
    """One replica's share of a durable."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        durable: str,
        filter_subject: str,
        *,
        handler: Handler,
        bury: Bury,
        ack_wait_s: float = ACK_WAIT_S,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._durable = durable
        self._config = _durable_config(durable, filter_subject, ack_wait_s)
        self._ack_wait_s = ack_wait_s
        self._handler = handler
        self._bury = bury
        self._stopping = False
        self._puller: Puller | None = None
        self._task: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Create or join the durable and begin.

        Raises:
            Misconfigured: it exists with another configuration.
        """
        await self._ensure()
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Stop receiving and wait for the running handler."""
        self._stopping = True
        if self._puller is not None:
            self._puller.interrupt()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _ended(self, task: "asyncio.Future[None]") -> None:
        """End the service when a bug ends the consumer: it must not look alive."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s of %s died", self._durable, self._stream, exc_info=error)
            self._connection.on_fatal(FrenzyError(f"consumer {self._durable} died: {error!r}"))

    async def _run(self) -> None:
        while not self._stopping:
            try:
                async with Puller(self._connection, self._stream, self._durable) as self._puller:
                    await self._pull(self._puller)
            except (PullLost, Error) as lost:  # a fresh inbox: what was asked for is forgotten
                if not self._stopping:
                    log.warning("%s of %s: pull lost: %s", self._durable, self._stream, lost)
                    await self._recover()

    async def _pull(self, puller: Puller) -> None:
        while not self._stopping:
            async with contextlib.aclosing(puller.pull(1, _EXPIRES_S)) as messages:
                async for message in messages:
                    await self._handle(message)

    async def _recover(self) -> None:
        """Wait for the server and put back a durable that somebody deleted."""
        while not self._stopping:
            try:
                await self._connection.ready(1.0)
                await self._ensure()
            except Misconfigured as error:
                self._connection.on_fatal(error)
                return
            except Unavailable as error:
                log.warning("%s of %s: %s", self._durable, self._stream, error.message)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def _ensure(self) -> None:
        endpoint = f"{self._stream}.{self._durable}"
        try:
            found = (await call(self._connection, f"CONSUMER.INFO.{endpoint}"))["config"]
        except ApiError as error:
            if error.number != CONSUMER_NOT_FOUND:
                raise
            body = {"stream_name": self._stream, "config": self._config}
            await call(
                self._connection,
                f"CONSUMER.CREATE.{endpoint}.{self._config['filter_subject']}",
                body,
            )
            return
        for field, value in self._config.items():
            if found.get(field) != value:
                raise Misconfigured(
                    f"durable {self._durable} of {self._stream}: {field} is "
                    f"{found.get(field)!r}, expected {value!r}",
                    suggestions=(f"delete it: nats consumer rm {self._stream} {self._durable}",),
                )

    async def _handle(self, raw: Msg) -> None:
        message = to_message(raw)
        if message.deliveries > MAX_DELIVERIES:  # it kills whoever handles it
            await self._give_up(raw, message, "the handler never finished")
            return
        keeper = asyncio.ensure_future(self._keep(raw))
        try:
            await self._handler(message)
        except Poison as poison:
            await self._give_up(raw, message, str(poison))
        except Exception as error:  # noqa: BLE001 - any handler failure is a redelivery
            await self._failed(raw, message, error)
        else:
            await _tell(raw.ack)
        finally:
            keeper.cancel()

    async def _failed(self, raw: Msg, message: Message, error: Exception) -> None:
        log.warning(
            "%s: handling %s (delivery %d) failed: %r",
            self._durable,
            message.subject,
            message.deliveries,
            error,
            exc_info=not isinstance(error, Unavailable),
        )
        if message.deliveries >= MAX_DELIVERIES:
            await self._give_up(raw, message, repr(error))
        else:
            await _tell(raw.nak, redelivery_delay_s(message.deliveries))

    async def _give_up(self, raw: Msg, message: Message, reason: str) -> None:
        log.error("%s: dead-lettering %s: %s", self._durable, message.subject, reason)
        letter = dead_letter(message, self._durable, reason)
        try:
            try:
                await self._bury(letter)
            except PayloadTooLarge:  # the letter's headers were too much; the stream has the rest
                await self._bury(replace(letter, payload=b""))
        except Unavailable as error:  # not stored: it stays in the stream and comes again
            log.warning("%s: cannot dead-letter: %s", self._durable, error.message)
            await _tell(raw.nak, redelivery_delay_s(message.deliveries))
        else:
            await _tell(raw.term)

    async def _keep(self, raw: Msg) -> None:
        """Tell the server, while a slow handler runs, that the message is being worked on."""
        while True:
            await asyncio.sleep(self._ack_wait_s / 3)
            await _tell(raw.in_progress)


async def _tell(verb: Callable[..., Awaitable[None]], *arguments: float) -> None:
    """Answer the server; an answer that cannot be sent means a redelivery, which is harmless."""
    try:
        await verb(*arguments)
    except Error as error:
        log.warning("an acknowledgement was not sent: %s", error or type(error).__name__)


def _durable_config(durable: str, filter_subject: str, ack_wait_s: float) -> dict[str, Any]:
    return {
        "name": durable,
        "durable_name": durable,
        "filter_subject": filter_subject,
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * 1e9),
        "max_deliver": -1,  # the dead-letter rule is ours; the server would only fall silent
        "max_ack_pending": 256,
    }
