"""Turn stored log batches into the events that a follower of a log sees. Pure."""

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from frenzy_gateway.loglines import Line, LineTracker, LogFilter, clean, lines_of
from frenzy_gateway.sse import ServerEvent, event
from frenzy_shared.bus.port import Message
from frenzy_shared.errors import BadRequest
from frenzy_shared.messages.v1 import LogBatch
from frenzy_shared.times import moment

log = logging.getLogger(__name__)


_MAX_DIGITS: Final = 18  # the bus counts in 64 bits


def is_sequence(text: str) -> bool:
    """Tell whether ``text`` can be a message's number in a stream."""
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogCursor:
    """A place in a job's log: line ``index`` (from 1) of the batch stored under ``sequence``."""

    sequence: int
    index: int

    @classmethod
    def parse(cls, text: str) -> "LogCursor":
        """Read a ``Last-Event-ID``; ``BadRequest`` when this server did not make it."""
        sequence, _, index = text.partition("-")
        if not (is_sequence(sequence) and is_sequence(index)):
            raise BadRequest(f"Last-Event-ID {text[:80]!r} is not one of this log's ids")
        return cls(sequence=int(sequence), index=int(index))

    @property
    def text(self) -> str:
        """Return the event id."""
        return f"{self.sequence}-{self.index}"


@dataclass(slots=True, kw_only=True)
class LogFeed:
    """What one follower is told, batch by batch.

    After a resume (``after``) nothing that was already told is repeated; if the batch in which
    the client stopped is no longer stored, lines may be missing and a ``gap`` says so. With
    ``tail`` the lines up to ``history_end`` are held back and only each rank's last ones told.
    """

    wanted: LogFilter
    after: LogCursor | None
    tail: int | None
    history_end: int
    _tracker: LineTracker = field(init=False)
    _held: dict[tuple[int, int], deque[tuple[LogCursor, Line]]] = field(default_factory=dict)
    _first: bool = True

    def __post_init__(self) -> None:
        """Count lines from 1 only when the log is read from its start."""
        if self.after is not None:
            self.tail = None  # a resumed follower has had its tail
        self._tracker = LineTracker(complete=self.after is None and self.tail is None)

    @property
    def start(self) -> int:
        """Return the sequence to read after: the batch of ``after`` is read again."""
        return max(0, self.after.sequence - 1) if self.after else 0

    def take(self, message: Message) -> Iterator[ServerEvent]:
        """Yield the events of one stored batch."""
        if message.sequence > self.history_end:
            yield from self.flush()
        if self._first and self.after and message.sequence > self.after.sequence:
            yield event("gap", {"after_id": self.after.text})
        self._first = False
        for index, line in enumerate(lines_in(message, self.wanted), start=1):
            place = LogCursor(sequence=message.sequence, index=index)
            if self.after is not None and place <= self.after:
                self._tracker.accept(line)
            elif self.tail is not None:
                held = self._held.setdefault(line.source, deque(maxlen=self.tail))
                held.append((place, line))
            else:
                yield from self._tell(place, line)

    def flush(self) -> Iterator[ServerEvent]:
        """End the history: yield the lines held back for the tail, in the stream's order."""
        held = sorted(
            (item for lines in self._held.values() for item in lines), key=lambda item: item[0]
        )
        self._held, self.tail = {}, None
        for place, line in held:
            yield from self._tell(place, line)

    def _tell(self, place: LogCursor, line: Line) -> Iterator[ServerEvent]:
        fresh, gap = self._tracker.accept(line)
        source = {"attempt": line.attempt, "rank": line.rank}
        if gap is not None:
            yield event("gap", {**source, "first": gap.first, "last": gap.last})
        if fresh:
            data = {
                **source,
                "number": line.line.number,
                "output": line.line.output,
                "text": clean(line.line.text),
                "time": moment(line.line.time_ms).isoformat().replace("+00:00", "Z"),
            }
            yield event("log", data, id_=place.text)


def lines_in(message: Message, wanted: LogFilter) -> Iterator[Line]:
    """Yield the wanted lines of a stored message; what is not a batch is logged and skipped."""
    try:
        batch = LogBatch.decode(message.payload)
    except ValidationError as error:
        log.warning("%s holds no log batch: %s", message.subject, error)
        return
    if wanted.takes(batch):
        yield from lines_of(batch)
