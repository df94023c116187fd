"""What a NATS server keeps, in memory: streams, durables and who listens.

Several ``MemoryBus`` on one broker are replicas on one server. A durable's position, its
redeliveries and the dedupe table live here and outlast any bus.
"""

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from frenzy_shared.bus.delivery import MAX_PAYLOAD_BYTES, dead_letter, matches, outgoing_headers
from frenzy_shared.bus.port import DurableState, Headers, Message, Published
from frenzy_shared.errors import Misconfigured, PayloadTooLarge, Unavailable
from frenzy_shared.messages.subjects import STREAMS, StreamConfig


class Listener(Protocol):
    """A core subscription: what it listens to, its queue group, and where messages go."""

    pattern: str
    queue: str

    def deliver(self, message: Message, answer: "asyncio.Future[bytes] | None") -> None:
        """Take one message; ``answer`` is set for requests."""
        ...


@dataclass(slots=True)
class _Durable:
    filter_subject: str
    delivered: int = 0  # the highest sequence given out
    again: list[tuple[float, int]] = field(default_factory=list)  # heap of (due, sequence)
    deliveries: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pulled:
    """A durable of clients that are not on this broker: it only tells what they would get."""

    filters: tuple[str, ...]
    after: int


@dataclass(slots=True)
class _Stream:
    config: StreamConfig
    messages: list[Message] = field(default_factory=list)  # sequence = index + 1
    removed: set[int] = field(default_factory=set)
    ids: dict[str, int] = field(default_factory=dict)
    durables: dict[str, _Durable] = field(default_factory=dict)
    pulled: dict[str, _Pulled] = field(default_factory=dict)


class MemoryBroker:
    """An in-memory server. Set ``available`` to False for an outage.

    ``retry_delay_s`` is the wait before a redelivery, ``idle_s`` how long a reader waits before
    it yields None. Message ids are remembered for ever.
    """

    def __init__(
        self,
        *,
        streams: Iterable[StreamConfig] = STREAMS,
        retry_delay_s: float = 0.0,
        idle_s: float = 1.0,
    ) -> None:
        self.retry_delay_s = retry_delay_s
        self.idle_s = idle_s
        self.available = True
        self.listeners: list[Listener] = []
        self._streams = {config.name: _Stream(config) for config in streams}
        self._changed = asyncio.Event()
        self._turn = itertools.count()

    def check(self) -> None:
        """Raise ``Unavailable`` during an outage."""
        if not self.available:
            raise Unavailable("the bus is unreachable")

    def messages(self, stream: str) -> tuple[Message, ...]:
        """Return every stored message of a stream, oldest first."""
        found = self._stream(stream)
        return tuple(m for m in found.messages if m.sequence not in found.removed)

    def configs(self) -> dict[str, StreamConfig]:
        """Return the configuration of each stream that exists."""
        return {name: stream.config for name, stream in self._streams.items()}

    def create(self, config: StreamConfig) -> None:
        """Create a stream unless it exists."""
        self._streams.setdefault(config.name, _Stream(config))

    def store(self, subject: str, payload: bytes, message_id: str, headers: Headers) -> Published:
        """Append a message to the stream of its subject, once per message id."""
        self.check()
        check_size(payload)
        stream = next(
            (s for s in self._streams.values() if matches(s.config.subject, subject)), None
        )
        if stream is None:
            raise Unavailable(f"no stream takes {subject}")
        if known := stream.ids.get(message_id):
            return Published(sequence=known, duplicate=True)
        sequence = len(stream.messages) + 1
        stream.ids[message_id] = sequence
        stream.messages.append(
            Message(
                subject=subject,
                payload=payload,
                headers=headers,
                stream=stream.config.name,
                sequence=sequence,
                time_ms=time.time_ns() // 1_000_000,
            )
        )
        if stream.config.max_per_subject == 1:
            same = (m for m in stream.messages[:-1] if m.subject == subject)
            stream.removed.update(message.sequence for message in same)
        self.route(stream.messages[-1], None)  # core subscribers hear stored messages too
        self.notify()
        return Published(sequence=sequence, duplicate=False)

    def bind(self, stream: str, durable: str, filter_subject: str) -> None:
        """Create a durable, or join it.

        Raises:
            Misconfigured: it exists with another filter.
        """
        self.check()
        durables = self._stream(stream).durables
        known = durables.setdefault(durable, _Durable(filter_subject))
        if known.filter_subject != filter_subject:
            raise Misconfigured(
                f"durable {durable} of {stream}: filter_subject is {known.filter_subject!r}, "
                f"expected {filter_subject!r}"
            )

    def take(self, stream: str, durable: str, now: float) -> Message | None:
        """Give out the next message of a durable: due redeliveries first, then new ones."""
        source = self._stream(stream)
        state = source.durables[durable]
        if not self.available:
            return None
        if state.again and state.again[0][0] <= now:
            _, sequence = heapq.heappop(state.again)
        else:
            fresh = self.after(stream, state.filter_subject, state.delivered)
            if fresh is None:
                return None
            sequence = state.delivered = fresh.sequence
        count = state.deliveries.get(sequence, 0) + 1
        state.deliveries[sequence] = count
        original = source.messages[sequence - 1]
        return Message(
            subject=original.subject,
            payload=original.payload,
            headers=original.headers,
            stream=stream,
            sequence=sequence,
            deliveries=count,
        )

    def give_back(self, stream: str, durable: str, sequence: int, due: float) -> None:
        """Redeliver a message from ``due`` (loop time) on."""
        heapq.heappush(self._stream(stream).durables[durable].again, (due, sequence))
        self.notify()

    def bury(self, message: Message, durable: str, reason: str) -> None:
        """Store a message in the dead-letter stream; its durable never sees it again."""
        letter = dead_letter(message, durable, reason)
        headers = outgoing_headers(letter.headers, message_id=letter.message_id)
        self.store(letter.subject, letter.payload, letter.message_id, headers)

    def next_due(self, stream: str, durable: str) -> float | None:
        """Return when the next redelivery is due, in loop time."""
        again = self._stream(stream).durables[durable].again
        return again[0][0] if again else None

    def add_durable(
        self, stream: str, durable: str, filters: Iterable[str], *, history: bool
    ) -> None:
        """Make a durable for others.

        Raises:
            Unavailable: it exists with another configuration.
        """
        found = self._stream(stream)
        made = _Pulled(tuple(filters), 0 if history else len(found.messages))
        known = found.pulled.setdefault(durable, made)
        if known.filters != made.filters:
            raise Unavailable(f"durable {durable} of {stream} exists with other filters")

    def durable_state(self, stream: str, durable: str) -> DurableState | None:
        """Return what waits for the clients of a durable; None when there is none."""
        found = self._stream(stream)
        pulled = found.pulled.get(durable)
        if pulled is None:
            return None
        waiting = [
            message
            for message in found.messages[pulled.after :]
            if message.sequence not in found.removed
            and any(matches(one, message.subject) for one in pulled.filters)
        ]
        return DurableState(pending=len(waiting), unacknowledged=0, pulling=False)

    def remove_durable(self, stream: str, durable: str) -> bool:
        """Remove a durable of others; False when there is none."""
        return self._stream(stream).pulled.pop(durable, None) is not None

    def after(self, stream: str, filter_subject: str, sequence: int) -> Message | None:
        """Return the first stored message after a sequence that matches."""
        found = self._stream(stream)
        for message in found.messages[sequence:]:
            if matches(filter_subject, message.subject) and message.sequence not in found.removed:
                return message
        return None

    def remove(self, stream: str, sequence: int) -> bool:
        """Delete a stored message; False when there is none."""
        found = self._stream(stream)
        if not 0 < sequence <= len(found.messages) or sequence in found.removed:
            return False
        found.removed.add(sequence)
        return True

    def last_sequence(self, stream: str, filter_subject: str = ">") -> int:
        """Return the last stored sequence of the messages that match, 0 when there are none."""
        self.check()
        found = self._stream(stream)
        for message in reversed(found.messages):
            if matches(filter_subject, message.subject) and message.sequence not in found.removed:
                return message.sequence
        return 0

    def route(self, message: Message, answer: "asyncio.Future[bytes] | None") -> int:
        """Hand a core message to each plain listener and one of each queue group; count them."""
        hearing = [item for item in self.listeners if matches(item.pattern, message.subject)]
        chosen = [item for item in hearing if not item.queue]
        for queue in dict.fromkeys(item.queue for item in hearing if item.queue):
            group = [item for item in hearing if item.queue == queue]
            chosen.append(group[next(self._turn) % len(group)])
        for listener in chosen:
            listener.deliver(message, answer)
        return len(chosen)

    def notify(self) -> None:
        """Wake everyone who waits for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait for a change, at most ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _stream(self, name: str) -> _Stream:
        if name not in self._streams:
            raise Unavailable(f"stream {name} does not exist; run `frenzy init`")
        return self._streams[name]


def check_size(payload: bytes) -> None:
    """Raise ``PayloadTooLarge`` for more than the server's ``max_payload``."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"a message of {len(payload)} bytes; the bus takes at most {MAX_PAYLOAD_BYTES}"
        )
