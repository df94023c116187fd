"""Read a job's events and logs from the bus: whole, or followed until the job has ended."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from frenzy_gateway.feed import LogFeed, lines_in
from frenzy_gateway.loglines import LineTable, LogFilter
from frenzy_gateway.sse import Events, ServerEvent, event
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.domain.job import TERMINAL, JobRecord
from frenzy_shared.errors import BadRequest, PayloadTooLarge, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.envelope import CloudEvent
from frenzy_shared.state.port import StateStore

EVENTS: Final = subjects.EVENTS_STREAM
LOGS: Final = subjects.LOGS_STREAM
_QUIET_TICKS: Final = 2  # idle moments in a row after which an ended job has nothing more to say

log = logging.getLogger(__name__)


def parse_sequence(text: str) -> int:
    """Read the ``Last-Event-ID`` of an event stream; ``BadRequest`` when it is not a number."""
    if not (text.isascii() and text.isdecimal()):
        raise BadRequest(f"Last-Event-ID {text[:80]!r} is not one of this stream's ids")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads one job's streams. ``stopping`` ends every follower when the process stops.

    Whatever starts reading raises ``Unavailable`` when the bus is down; a follower that has
    started waits for it to come back.
    """

    state: StateStore
    bus: Bus
    stopping: asyncio.Event
    max_log_bytes: int

    async def events(self, job: JobRecord) -> list[CloudEvent]:
        """Return the job's stored events, oldest first."""
        found = []
        subject = subjects.job_events(job.project, job.id)
        async with aclosing(self._stored(EVENTS, subject)) as messages:
            async for message in messages:
                told = _decode(message)
                if told is not None:
                    found.append(told)
        return found

    async def log(self, job: JobRecord, wanted: LogFilter, tail: int | None) -> LineTable:
        """Return the job's stored lines.

        Raises:
            PayloadTooLarge: they are more than one answer may hold.
        """
        table = LineTable(tail=tail)
        async with aclosing(self._stored(LOGS, _log_subject(job, wanted))) as messages:
            async for message in messages:
                for line in lines_in(message, wanted):
                    table.add(line)
                if table.size_bytes > self.max_log_bytes:
                    raise PayloadTooLarge(
                        f"this log is longer than {self.max_log_bytes} bytes",
                        suggestions=("ask for one rank, or for the last lines with tail=N",),
                    )
        return table

    async def end_of(self, stream: str) -> int:
        """Return the last stored sequence at this moment."""
        return await self.bus.last_sequence(stream)

    async def follow_events(self, job: JobRecord, after: int) -> Events:
        """Yield stored events after a sequence, then new ones, then ``end``.

        The stream ends when the event of the job's last transition was seen. The event before
        the first wanted one is read again to know where the client is.
        """
        seen_version = quiet = 0
        subject = subjects.job_events(job.project, job.id)
        async with aclosing(self._followed(EVENTS, subject, max(0, after - 1))) as messages:
            async for message in messages:
                if message is None:
                    last = await self._finished(job)
                    quiet = quiet + 1 if last is not None and await self._relayed() else 0
                    if last is not None and (seen_version >= last.version or quiet == _QUIET_TICKS):
                        yield event("end", {"state": last.state})
                        return
                    yield None
                elif (told := _decode(message)) is not None:
                    quiet = 0
                    seen_version = max(seen_version, _version(told))
                    if message.sequence > after:
                        data = told.encode().decode()
                        yield ServerEvent(event="event", data=data, id=str(message.sequence))

    async def follow_log(self, job: JobRecord, feed: LogFeed) -> Events:
        """Yield stored lines as ``feed`` tells them, then new ones, then ``end``.

        The stream ends when the job has ended and nothing more is stored: agents ship every line
        before a job's last transition.
        """
        last = job if job.state in TERMINAL else None
        subject = _log_subject(job, feed.wanted)
        async with aclosing(self._followed(LOGS, subject, feed.start)) as messages:
            async for message in messages:
                for told in feed.flush() if message is None else feed.take(message):
                    yield told
                if message is not None:
                    continue
                if last is not None and self.bus.connected:
                    yield event("end", {"state": last.state})
                    return
                last = await self._finished(job)
                yield None

    async def _stored(self, stream: str, subject: str) -> AsyncGenerator[Message, None]:
        """Yield what is stored at this moment."""
        end = await self.bus.last_sequence(stream)
        if not end:
            return
        async with aclosing(self._followed(stream, subject, 0)) as messages:
            async for message in messages:
                if message is None:
                    if not self.bus.connected:
                        raise Unavailable("the message bus is unreachable")
                    return
                if message.sequence <= end:
                    yield message
                if message.sequence >= end:
                    return
        raise Unavailable("the gateway is stopping")

    async def _followed(
        self, stream: str, subject: str, after: int
    ) -> AsyncGenerator[Message | None, None]:
        """Yield messages, and None when idle, until the process stops."""
        messages = self.bus.read(stream, subject, after_sequence=after)
        async with aclosing(messages):
            async for message in messages:
                if self.stopping.is_set():
                    return
                yield message

    async def _finished(self, job: JobRecord) -> JobRecord | None:
        """Return the record of a job that has ended. A store that is down tells nothing."""
        try:
            record = await self.state.job(job.id)
        except Unavailable:
            return None
        if record is None:
            return job  # its retention is over
        return record if record.state in TERMINAL else None

    async def _relayed(self) -> bool:
        """Tell whether every stored event has reached the stream."""
        health = await self.state.health()
        return health.reachable and health.outbox_lag == 0 and self.bus.connected


def _decode(message: Message) -> CloudEvent | None:
    try:
        return CloudEvent.decode(message.payload)
    except ValidationError as error:
        log.warning("%s holds no event: %s", message.subject, error)
        return None


def _version(told: CloudEvent) -> int:
    """Return the version of the job that an event tells of; 0 when it does not say."""
    record = told.data.get("record")
    version = record.get("version") if isinstance(record, dict) else None
    return version if isinstance(version, int) else 0


def _log_subject(job: JobRecord, wanted: LogFilter) -> str:
    """Return the narrowest filter that the subjects allow."""
    if wanted.attempt is None or wanted.rank is None:
        return subjects.job_logs(job.project, job.id)
    return subjects.log(job.project, job.id, wanted.attempt, wanted.rank)
