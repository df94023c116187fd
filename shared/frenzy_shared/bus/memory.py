"""The bus in memory: for tests and the simulator; same behaviour suite as the NATS adapter."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from weakref import WeakSet

from frenzy_shared.bus.delivery import MAX_DELIVERIES, outgoing_headers
from frenzy_shared.bus.memory_broker import MemoryBroker, check_size
from frenzy_shared.bus.port import (
    DurableState,
    Handler,
    Headers,
    Message,
    Poison,
    Published,
    Responder,
    Subscription,
)
from frenzy_shared.errors import Misconfigured, Unavailable
from frenzy_shared.messages.subjects import STREAMS

log = logging.getLogger(__name__)


class MemoryBus:
    """One connection to a ``MemoryBroker``."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self._open: WeakSet[Subscription] = WeakSet()  # a stopped one drops out
        self._closed = False

    async def publish(
        self, subject: str, payload: bytes, *, message_id: str, headers: Headers | None = None
    ) -> Published:
        """Store a message once per id."""
        self._check()
        return self.broker.store(
            subject, payload, message_id, outgoing_headers(headers, message_id=message_id)
        )

    async def consume(
        self, stream: str, durable: str, handler: Handler, *, filter_subject: str
    ) -> Subscription:
        """Handle a durable's messages, one at a time on this bus."""
        self._check()
        self.broker.bind(stream, durable, filter_subject)
        return self._keep(_Consumer(self.broker, stream, durable, handler))

    async def read(
        self, stream: str, filter_subject: str, *, after_sequence: int
    ) -> AsyncGenerator[Message | None, None]:
        """Read stored messages, then follow."""
        position = after_sequence
        while not self._closed:
            message = (
                self.broker.after(stream, filter_subject, position)
                if self.broker.available
                else None
            )
            if message is not None:
                position = message.sequence
                yield message
                continue
            before = self.broker.last_sequence(stream) if self.broker.available else position
            await self.broker.wait(self.broker.idle_s)
            if not self.broker.available or self.broker.last_sequence(stream) == before:
                yield None

    async def last_sequence(self, stream: str, filter_subject: str = "") -> int:
        """Return the last stored sequence of a stream, or of the messages that match."""
        self._check()
        return self.broker.last_sequence(stream, filter_subject or ">")

    async def remove(self, stream: str, sequence: int) -> bool:
        """Delete one stored message; False when there is none."""
        self._check()
        return self.broker.remove(stream, sequence)

    async def add_durable(
        self, stream: str, durable: str, filters: Sequence[str], *, history: bool
    ) -> None:
        """Make a durable from which another client pulls."""
        self._check()
        self.broker.add_durable(stream, durable, filters, history=history)

    async def durable_state(self, stream: str, durable: str) -> DurableState | None:
        """Return how far a durable is."""
        self._check()
        return self.broker.durable_state(stream, durable)

    async def remove_durable(self, stream: str, durable: str) -> bool:
        """Remove a durable; False when there is none."""
        self._check()
        return self.broker.remove_durable(stream, durable)

    async def emit(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> None:
        """Send a core message."""
        self._route(subject, payload, headers, None)

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Receive core messages, one at a time."""
        self._check()
        return self._keep(_Listening(self.broker, subject, queue, _ignoring(handler), limit=1))

    async def request(
        self, subject: str, payload: bytes, *, timeout_s: float, headers: Headers | None = None
    ) -> bytes:
        """Ask and wait for the first answer."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self._route(subject, payload, headers, answer):
            raise Unavailable(f"nobody answers {subject}")
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise Unavailable(f"no answer from {subject} in {timeout_s:g} s") from None

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:
        """Answer requests."""
        self._check()
        return self._keep(_Listening(self.broker, subject, queue, responder, limit=16))

    async def ensure_streams(self) -> None:
        """Create missing streams."""
        self._check()
        for config in STREAMS:
            self.broker.create(config)

    async def verify_streams(self) -> None:
        """Compare every stream with its configuration."""
        self._check()
        present = self.broker.configs()
        for config in STREAMS:
            if config.name not in present:
                raise Misconfigured(f"stream {config.name} does not exist")
            if present[config.name] != config:
                raise Misconfigured(f"stream {config.name} differs: {present[config.name]}")

    @property
    def connected(self) -> bool:
        """Tell whether the broker is up and this bus is open."""
        return self.broker.available and not self._closed

    async def close(self) -> None:
        """Stop every subscription."""
        self._closed = True
        for subscription in list(self._open):
            await subscription.stop()

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("the bus is closed")
        self.broker.check()

    def _keep(self, subscription: Subscription) -> Subscription:
        self._open.add(subscription)
        return subscription

    def _route(
        self,
        subject: str,
        payload: bytes,
        headers: Headers | None,
        answer: "asyncio.Future[bytes] | None",
    ) -> int:
        self._check()
        check_size(payload)
        message = Message(subject=subject, payload=payload, headers=outgoing_headers(headers))
        return self.broker.route(message, answer)


class _Consumer:
    """One replica's share of a durable."""

    def __init__(self, broker: MemoryBroker, stream: str, durable: str, handler: Handler) -> None:
        self._broker = broker
        self._stream = stream
        self._durable = durable
        self._handler = handler
        self._stopping = False
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Let the running handler end, then stop."""
        self._stopping = True
        self._broker.notify()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            message = self._broker.take(self._stream, self._durable, loop.time())
            if message is not None:
                await self._handle(message)
                continue
            due = self._broker.next_due(self._stream, self._durable)
            await self._broker.wait(1.0 if due is None else max(0.0, min(1.0, due - loop.time())))

    async def _handle(self, message: Message) -> None:
        due = asyncio.get_running_loop().time() + self._broker.retry_delay_s
        try:
            await self._handler(message)
        except Poison as poison:
            self._bury(message, str(poison))
        except Exception as error:  # noqa: BLE001 - any handler failure is a redelivery
            log.warning("%s: handling %s failed: %r", self._durable, message.subject, error)
            if message.deliveries >= MAX_DELIVERIES:
                self._bury(message, repr(error))
            else:
                self._again(message, due)
        except asyncio.CancelledError:
            self._again(message, due)
            raise

    def _bury(self, message: Message, reason: str) -> None:
        try:
            self._broker.bury(message, self._durable, reason)
        except Unavailable:
            self._again(message, asyncio.get_running_loop().time())

    def _again(self, message: Message, due: float) -> None:
        self._broker.give_back(self._stream, self._durable, message.sequence, due)


class _Listening:
    """A core subscription: messages wait in a queue; up to ``limit`` are handled at once."""

    def __init__(
        self, broker: MemoryBroker, pattern: str, queue: str, responder: Responder, *, limit: int
    ) -> None:
        self.pattern = pattern
        self.queue = queue
        self._broker = broker
        self._responder = responder
        self._limit = limit
        self._waiting: deque[tuple[Message, asyncio.Future[bytes] | None]] = deque()
        self._running: set[asyncio.Future[None]] = set()
        broker.listeners.append(self)

    def deliver(self, message: Message, answer: "asyncio.Future[bytes] | None") -> None:
        """Queue one message."""
        core = Message(subject=message.subject, payload=message.payload, headers=message.headers)
        self._waiting.append((core, answer))
        if len(self._running) < self._limit:
            task = asyncio.ensure_future(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Stop listening and wait for what is running."""
        if self in self._broker.listeners:
            self._broker.listeners.remove(self)
        self._waiting.clear()
        while self._running:
            await asyncio.wait(set(self._running))

    async def _run(self) -> None:
        while self._waiting:
            message, answer = self._waiting.popleft()
            try:
                reply = await self._responder(message)
            except Exception:
                log.exception("handling %s failed", message.subject)
                continue
            if reply is not None and answer is not None and not answer.done():
                answer.set_result(reply)


def _ignoring(handler: Handler) -> Responder:
    async def respond(message: Message) -> None:
        await handler(message)

    return respond
