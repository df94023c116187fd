"""Server-sent events: framing, keep-alive, and a response that always closes its source."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Send

from frenzy_shared.clock import Clock
from frenzy_shared.errors import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event. A client that reconnects sends the last ``id`` it saw as ``Last-Event-ID``."""

    event: str
    data: str  # JSON, one line
    id: str = ""

    def encode(self) -> bytes:
        """Return the event as the ``text/event-stream`` format writes it."""
        identity = f"id: {self.id}\n" if self.id else ""
        return f"{identity}event: {self.event}\ndata: {self.data}\n\n".encode()


# None: nothing happened for a moment; time to think of keep-alive.
Events = AsyncGenerator[ServerEvent | None, None]


def event(kind: str, data: Mapping[str, Any], *, id_: str = "") -> ServerEvent:
    """Make an event whose data is a JSON object."""
    return ServerEvent(event=kind, data=json.dumps(data, ensure_ascii=False), id=id_)


@dataclass(slots=True)
class Followers:
    """Counts open event streams: each one costs a reader on the bus."""

    limit: int
    count: int = 0

    def check(self) -> None:
        """Raise ``Unavailable`` when there are as many as this process serves."""
        if self.count >= self.limit:
            raise Unavailable(
                f"{self.count} logs and events are followed already; try again later",
                suggestions=("close some streams", "ask again without Accept: text/event-stream"),
            )

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a stream while it is open."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class EventStreamResponse(StreamingResponse):
    """Send events as they come; the source is closed when the client leaves."""

    def __init__(
        self, events: Events, *, followers: Followers, clock: Clock, keep_alive_s: float
    ) -> None:
        self._followers = followers
        self._frames = _frames(events, clock, keep_alive_s)
        super().__init__(
            self._frames,
            media_type="text/event-stream",
            # Proxies must pass each event on at once.
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def stream_response(self, send: Send) -> None:
        """Send the stream and close its source, also after a cancellation."""
        with self._followers.one_more():
            async with aclosing(self._frames):
                await super().stream_response(send)


async def _frames(events: Events, clock: Clock, keep_alive_s: float) -> AsyncGenerator[bytes, None]:
    yield b": connected\n\n"  # headers reach the client now, not with the first event
    sent = clock.monotonic()
    async with aclosing(events):
        async for item in events:
            now = clock.monotonic()
            if item is not None:
                yield item.encode()
                sent = now
            elif now - sent >= keep_alive_s:
                yield b": keep-alive\n\n"
                sent = now
