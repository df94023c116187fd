"""Read a job's events and logs from the bus: whole, or followed until the job has ended."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from frenzy_gateway.feed import LogFeed, is_sequence, lines_in
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

log = logging.getLogger(__name__)


def parse_sequence(text: str) -> int:
    """Read the ``Last-Event-ID`` of an event stream; ``BadRequest`` when it is not a number."""
    if not is_sequence(text):
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
                        suggestions=("ask for one rank, or only for the last lines (tail)",),
                    )
        return table

    async def history_end(self, job: JobRecord, wanted: LogFilter) -> int:
        """Return the sequence of the last wanted batch that is stored at this moment."""
        self.require_bus()
        return await self.bus.last_sequence(LOGS, _log_subject(job, wanted))

    def require_bus(self) -> None:
        """Raise ``Unavailable`` when the bus is down: an error at once, not an empty stream."""
        if not self.bus.connected:
            raise Unavailable("the message bus is unreachable")

    async def follow_events(self, job: JobRecord, after: int) -> Events:
        """Yield stored events after a sequence, then new ones, then ``end``.

        The stream ends with the event that tells of a terminal state. The last event that the
        client saw is read again, so that a client which saw that one is told the end too; when it
        is not stored any more, the end comes once everything was published and read.
        """
        subject, position = subjects.job_events(job.project, job.id), max(0, after - 1)
        async with aclosing(self._followed(EVENTS, subject, position)) as messages:
            async for message in messages:
                if message is None:
                    state = await self._silent_end(job, subject, position)
                    yield event("end", {"state": state}) if state else None
                else:
                    position = message.sequence
                    told = _decode(message)
                    if told is not None and position > after:
                        data = told.encode().decode()
                        yield ServerEvent(event="event", data=data, id=str(position))
                    state = _terminal_state(told)
                    if state:
                        yield event("end", {"state": state})
                if state:
                    return

    async def follow_log(self, job: JobRecord, feed: LogFeed) -> Events:
        """Yield stored lines as ``feed`` tells them, then new ones, then ``end``.

        The stream ends when the job has ended and everything stored was read: agents ship every
        line before a job's last transition.
        """
        subject, position = _log_subject(job, feed.wanted), feed.start
        async with aclosing(self._followed(LOGS, subject, position)) as messages:
            async for message in messages:
                for told in feed.flush() if message is None else feed.take(message):
                    yield told
                if message is not None:
                    position = message.sequence
                    continue
                last = await self._finished(job)
                if last is not None and await self._read_all(LOGS, subject, position):
                    yield event("end", {"state": last.state})
                    return
                yield None

    async def _stored(self, stream: str, subject: str) -> AsyncGenerator[Message, None]:
        """Yield what is stored at this moment; it ends without waiting for anything."""
        self.require_bus()
        end, position = await self.bus.last_sequence(stream, subject), 0
        if not end:
            return
        async with aclosing(self._followed(stream, subject, 0)) as messages:
            async for message in messages:
                if message is None:  # a slow server, or its retention overtook the reader
                    if await self.bus.last_sequence(stream, subject) <= position:
                        return
                    continue
                position = message.sequence
                if position <= end:
                    yield message
                if position >= end:
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

    async def _read_all(self, stream: str, subject: str, position: int) -> bool:
        """Tell whether nothing is stored after ``position``; an unreachable bus tells nothing."""
        try:
            return await self.bus.last_sequence(stream, subject) <= position
        except Unavailable:
            return False

    async def _finished(self, job: JobRecord) -> JobRecord | None:
        """Return the record of a job that has ended. A store that is down tells nothing."""
        try:
            record = await self.state.job(job.id)
        except Unavailable:
            return None
        if record is None:
            return job  # its retention is over
        return record if record.state in TERMINAL else None

    async def _silent_end(self, job: JobRecord, subject: str, position: int) -> str:
        """Return the state of a job that has ended and of which no event is left to come, or ""."""
        last = await self._finished(job)
        if last is None:
            return ""
        health = await self.state.health()
        published = health.reachable and health.outbox_lag == 0
        return last.state if published and await self._read_all(EVENTS, subject, position) else ""


def _decode(message: Message) -> CloudEvent | None:
    try:
        return CloudEvent.decode(message.payload)
    except ValidationError as error:
        log.warning("%s holds no event: %s", message.subject, error)
        return None


def _terminal_state(told: CloudEvent | None) -> str:
    """Return the terminal state that an event tells of, "" when it tells of none."""
    record = told.data.get("record") if told is not None else None
    state = record.get("state") if isinstance(record, dict) else None
    return state if isinstance(state, str) and state in TERMINAL else ""


def _log_subject(job: JobRecord, wanted: LogFilter) -> str:
    """Return the narrowest filter that the subjects allow."""
    if wanted.attempt is None or wanted.rank is None:
        return subjects.job_logs(job.project, job.id)
    return subjects.log(job.project, job.id, wanted.attempt, wanted.rank)
