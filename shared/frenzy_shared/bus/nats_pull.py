"""Pull requests to a JetStream consumer, one at a time, on an inbox of their own.

Why not nats-py's ``fetch``: when the first message of a batch arrives it waits out the whole
timeout for the others (seconds of latency), and after a server restart it waits as long for a
reply that cannot come. Here each message is handed on as it arrives, and a lost connection ends
the wait at once.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Final, Self

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error

from frenzy_shared.bus.nats_connection import Connection
from frenzy_shared.bus.port import Message

_SLACK_S: Final = 2.0
_HEARTBEAT: Final = "100"
_ENDED: Final = frozenset({"404", "408"})  # no messages; expired


class PullLost(Exception):
    """The pull's answer cannot be trusted or will not come; what was not yielded may be lost."""


class Puller:
    """Pulls from one consumer. Not for concurrent use."""

    def __init__(
        self, connection: Connection, stream: str, consumer: str, *, acknowledged: bool = True
    ) -> None:
        self._connection = connection
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._acknowledged = acknowledged
        self._inbox = connection.client.new_inbox()
        self._arrived: asyncio.Queue[Msg | int] = asyncio.Queue()  # int: an interrupted pull
        self._number = 0
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        """Listen for what the pulls bring."""
        self._subscription = await self._connection.client.subscribe(
            f"{self._inbox}.*", cb=self._receive
        )
        self._connection.interrupts.add(self.interrupt)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and hand back what arrived unasked for, so that nobody waits for it."""
        self._connection.interrupts.discard(self.interrupt)
        with contextlib.suppress(Error):  # the connection is gone, and the subscription with it
            if self._subscription is not None:
                await self._subscription.unsubscribe()
            while not self._arrived.empty():
                item = self._arrived.get_nowait()
                if self._acknowledged and isinstance(item, Msg) and not self._is_status(item):
                    await item.nak()

    def interrupt(self) -> None:
        """End the pull that is waiting now, if any."""
        self._arrived.put_nowait(self._number)

    async def pull(self, batch: int, expires_s: float) -> AsyncGenerator[Msg, None]:
        """Ask for up to ``batch`` messages and yield them as they arrive.

        Ends when the batch is complete, or after ``expires_s`` with what there was.

        Raises:
            PullLost: no answer, the consumer is gone, or messages were lost on the way.
        """
        if not self._connection.connected:  # buffered, it would outlive our wait for it
            raise PullLost("disconnected")
        self._number += 1
        reply = f"{self._inbox}.{self._number}"
        request = {"batch": batch, "expires": int(expires_s * 1e9)}
        try:
            await self._connection.client.publish(
                self._next, json.dumps(request).encode(), reply=reply
            )
        except Error as error:
            raise PullLost(str(error)) from error
        received = 0
        deadline = asyncio.get_running_loop().time() + expires_s + _SLACK_S
        while received < batch:
            message = await self._wait(deadline)
            if not self._is_status(message):
                received += 1
                yield message
            elif message.subject == reply and _ended(message, batch - received):
                return

    async def _wait(self, deadline: float) -> Msg:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    item = await self._arrived.get()
            except TimeoutError:
                raise PullLost("no answer") from None
            if isinstance(item, Msg):
                return item
            if item == self._number:
                raise PullLost("interrupted")

    async def _receive(self, message: Msg) -> None:
        self._arrived.put_nowait(message)

    def _is_status(self, message: Msg) -> bool:
        return message.subject.startswith(self._inbox)


def to_message(message: Msg) -> Message:
    """Return a message of a stream as the port shows it."""
    metadata = message.metadata
    return Message(
        subject=message.subject,
        payload=message.data,
        headers=message.headers or {},
        stream=metadata.stream,
        sequence=metadata.sequence.stream,
        deliveries=metadata.num_delivered,
        time_ms=round(metadata.timestamp.timestamp() * 1000),
    )


def _ended(status: Msg, missing: int) -> bool:
    """Tell whether a status ends the pull in order; the server counts what it did not send."""
    headers = status.headers or {}
    code = headers.get("Status", "")
    if code == _HEARTBEAT:
        return False
    if code not in _ENDED:
        raise PullLost(f"{code} {headers.get('Description', '')}".strip())
    if int(headers.get("Nats-Pending-Messages", missing)) != missing:
        raise PullLost("messages were lost on the way")
    return True
