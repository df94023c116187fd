"""Server-sent events without I/O: parse lines, remember where we are, decide when to reconnect.

Format: WHATWG HTML, section 9.2. A stream of Frenzy ends with the event ``end``; anything else
is a broken connection, after which the reader asks again with ``Last-Event-ID``.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from frenzy.errors import from_answer
from frenzy.exchange import Answer, Call, Lost, Retry, asked_s, unreachable
from frenzy_shared.messages.envelope import CloudEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event. ``data`` is decoded JSON."""

    event: str
    id: str
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One line that a rank wrote. ``output`` is "stdout" or "stderr"; ``time`` is RFC 3339."""

    attempt: int
    rank: int
    number: int
    output: str
    text: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGap:
    """Lines that the server no longer has, or never got; ``detail`` is its explanation."""

    detail: str


class EventParser:
    """Turns bytes into events. Splits at LF only: texts may hold any other line separator."""

    def __init__(self, last_id: str = "") -> None:
        self._last_id = last_id
        self._rest = b""
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Take the next bytes; yield the events that they complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> ServerEvent | None:
        if line == "":
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._last_id = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        event, data = self._event or "message", "\n".join(self._data)
        empty = not self._data
        self._event, self._data = "", []
        if empty:
            return None
        return ServerEvent(event=event, id=self._last_id, data=json.loads(data))


@dataclass(slots=True, kw_only=True)
class Follower:
    """Follows one stream over as many connections as it takes.

    ``patience_s`` is how long the server may be away before that is an error.
    """

    call: Call
    retry: Retry
    patience_s: float = 120.0
    clock: Callable[[], float] = time.monotonic
    ended: bool = False
    end_data: Any = None
    _parser: EventParser = field(default_factory=EventParser)
    _last_id: str = ""
    _failures: int = 0
    _away_since: float | None = None

    def next_call(self) -> Call:
        """Return the request that opens the stream where it broke off."""
        headers = {**self.call.headers, "Accept": "text/event-stream"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        self._parser = EventParser(self._last_id)
        return replace(self.call, headers=headers)

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Take bytes of the stream; yield the events for the user."""
        for event in self._parser.feed(chunk):
            self._failures, self._away_since, self._last_id = 0, None, event.id
            if event.event == "end":
                self.ended, self.end_data = True, event.data
                return
            yield event

    def broke(self, outcome: Answer | Lost) -> float:
        """Return how long to wait before the next connection.

        Raises:
            FrenzyError: the server refused the stream, or has been away for too long.
        """
        if isinstance(outcome, Answer) and 400 <= outcome.status < 500 and outcome.status != 429:
            raise from_answer(outcome.status, outcome.body)
        now = self.clock()
        self._failures += 1
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._away_since > self.patience_s:
            if isinstance(outcome, Answer):
                raise from_answer(outcome.status, outcome.body)
            raise unreachable(outcome)
        return self.retry.delay_s(self._failures, asked_s(outcome))


def log_of(event: ServerEvent) -> LogEntry | LogGap | None:
    """Read a log stream's event; ``None`` for kinds that this version does not know."""
    if event.event == "log":
        names = LogEntry.__dataclass_fields__
        return LogEntry(**{name: event.data[name] for name in names})
    if event.event == "gap":
        return LogGap(detail=json.dumps(event.data))
    return None


def cloud_event_of(event: ServerEvent) -> CloudEvent | None:
    """Read an event stream's event; ``None`` for what is not a CloudEvent (a gap)."""
    if isinstance(event.data, dict) and "specversion" in event.data:
        return CloudEvent.model_validate(event.data, extra="ignore")
    return None
