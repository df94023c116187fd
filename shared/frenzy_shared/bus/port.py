"""What services may ask of the bus.

``publish`` and ``consume`` are durable (JetStream); ``emit``, ``subscribe``, ``request`` and
``serve`` are core messaging: lossy, fast, never needed for correctness.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A durable message is stored. ``duplicate``: it already was, under the same message id."""

    sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One received message; ``time_ms`` is when it was stored, wall clock.

    Core messages have 0 for ``sequence`` and ``time_ms``, and 1 for ``deliveries``.
    """

    subject: str
    payload: bytes
    headers: Headers = field(default_factory=dict)
    stream: str = ""
    sequence: int = 0
    deliveries: int = 1
    time_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableState:
    """How far a durable is. ``pulling``: somebody waits for its next message now."""

    pending: int
    unacknowledged: int
    pulling: bool


class Poison(Exception):
    """Raised by a handler: this message can never be handled; dead-letter it, say why."""


class Subscription(Protocol):
    """Something that receives until it is stopped."""

    async def stop(self) -> None:
        """Stop receiving and wait for the running handler."""
        ...


Handler = Callable[[Message], Awaitable[None]]
Responder = Callable[[Message], Awaitable[bytes | None]]  # None: stay silent


class Bus(Protocol):
    """The bus. Raises ``Unavailable`` when the server cannot be reached or refuses."""

    async def publish(
        self, subject: str, payload: bytes, *, message_id: str, headers: Headers | None = None
    ) -> Published:
        """Store a message. ``Unavailable`` means unknown: publish again with the same id."""
        ...

    async def consume(
        self, stream: str, durable: str, handler: Handler, *, filter_subject: str
    ) -> Subscription:
        """Handle every matching message at least once, in order, with the durable's other replicas.

        The message is acknowledged after the handler returns. ``Poison`` sends it to the
        dead-letter stream; any other exception redelivers it later, 10 deliveries dead-letter it.
        """
        ...

    def read(
        self, stream: str, filter_subject: str, *, after_sequence: int
    ) -> AsyncGenerator[Message | None, None]:
        """Read stored messages after a sequence, then follow. Yields None when idle for ~1 s.

        Survives server restarts. The caller stops by closing it (``contextlib.aclosing``).
        """
        ...

    async def last_sequence(self, stream: str, filter_subject: str = "") -> int:
        """Return the last stored sequence of a stream, or of the messages that match; 0: none."""
        ...

    async def remove(self, stream: str, sequence: int) -> bool:
        """Delete one stored message; False when there is none."""
        ...

    async def add_durable(
        self, stream: str, durable: str, filters: Sequence[str], *, history: bool
    ) -> None:
        """Make a durable from which another client pulls; ``history``: from the first message."""
        ...

    async def durable_state(self, stream: str, durable: str) -> DurableState | None:
        """Return how far a durable is; None when there is none."""
        ...

    async def remove_durable(self, stream: str, durable: str) -> bool:
        """Remove a durable; False when there is none."""
        ...

    async def emit(self, subject: str, payload: bytes, *, headers: Headers | None = None) -> None:
        """Send a core message to whoever listens now."""
        ...

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Receive core messages; with ``queue``, one of the group receives each."""
        ...

    async def request(
        self, subject: str, payload: bytes, *, timeout_s: float, headers: Headers | None = None
    ) -> bytes:
        """Ask and wait for one answer. ``Unavailable`` on timeout or when nobody listens."""
        ...

    async def serve(self, subject: str, responder: Responder, *, queue: str = "") -> Subscription:
        """Answer requests."""
        ...

    async def ensure_streams(self) -> None:
        """Create the streams of ``messages.subjects.STREAMS`` that do not exist (``up`` / init)."""
        ...

    async def verify_streams(self) -> None:
        """Raise ``Misconfigured``, naming field and values, when a stream differs or is missing."""
        ...

    @property
    def connected(self) -> bool:
        """Tell whether the server is reachable at this moment."""
        ...

    async def close(self) -> None:
        """Drain and close."""
        ...
