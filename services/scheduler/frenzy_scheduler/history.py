"""Read what the event stream and the store remember, for the recovery of the store."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from frenzy_scheduler.core.recovery import Witness
from frenzy_scheduler.safemode import Mark, mark_of
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import from_json
from frenzy_shared.messages.envelope import CloudEvent
from frenzy_shared.state.port import Json, StateStore

log = logging.getLogger(__name__)

_TOLD: Final = ("version", "state", "reason", "message", "attempt")
_PAGE: Final = 1000
_OUTBOX: Final = 10_000


@dataclass(slots=True, kw_only=True)
class Past:
    """What the event history says, newest version of each entity."""

    records: dict[str, Json] = field(default_factory=dict[str, Json])  # by entity
    specs: dict[str, Json] = field(default_factory=dict[str, Json])  # by job
    timelines: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])  # by job
    mark: Mark | None = None
    published: set[str] = field(default_factory=set[str])  # of the ids that were asked for

    def witness(self) -> Witness:
        """Return the records as the core takes them."""
        jobs = _named("job:", self.records)
        nodes = _named("node:", self.records)
        return Witness(
            jobs={JobId(name): from_json(JobRecord, record) for name, record in jobs.items()},
            nodes={NodeId(name): from_json(NodeRecord, record) for name, record in nodes.items()},
        )

    def take(self, message: Message, wanted: set[str]) -> None:
        """Take in one event, in the stream's order."""
        try:
            event = CloudEvent.decode(message.payload)
        except ValidationError as error:
            log.warning("not an event in %s: %s", message.subject, error)
            return
        record = event.data.get("record")
        if not isinstance(record, dict) or "version" not in record:
            return
        if event.id in wanted:
            self.published.add(event.id)
        self.mark = mark_of(event) or self.mark
        before = self.records.get(event.subject)
        if before is not None and before["version"] > record["version"]:
            return
        self.records[event.subject] = record
        job = event.subject.removeprefix("job:")
        if job != event.subject:
            self._tell(job, before, record)
            if isinstance(spec := event.data.get("spec"), dict):
                self.specs[job] = spec

    def _tell(self, job: str, before: Json | None, record: Json) -> None:
        if before is None or before["state"] != record["state"]:
            entry: dict[str, Any] = {name: record[name] for name in _TOLD}
            entry["time_ms"] = record["updated_ms"]
            self.timelines.setdefault(job, []).append(entry)


async def read_past(bus: Bus, store: StateStore) -> Past:
    """Read the whole event stream; note which of the store's own messages are in it.

    Raises:
        Unavailable: the bus or the store is.
    """
    wanted = {entry.message_id for entry in await store.read_outbox("", _OUTBOX)}
    past = Past()
    last = await bus.last_sequence(subjects.EVENTS_STREAM)
    if not last:
        return past
    events = bus.read(subjects.EVENTS_STREAM, subjects.ALL_EVENTS, after_sequence=0)
    async with contextlib.aclosing(events):
        async for message in events:
            if message is not None:
                past.take(message, wanted)
                if message.sequence >= last:
                    break
    return past


async def read_present(store: StateStore) -> Witness:
    """Read every record of the store."""
    jobs: dict[JobId, JobRecord] = {}
    token = ""
    while True:
        page = await store.list_jobs(
            project=None, states=frozenset(), page_size=_PAGE, page_token=token, labels={}
        )
        jobs |= {record.id: record for record in page.jobs}
        token = page.next_token
        if not token:
            break
    nodes = (await store.cluster()).nodes
    return Witness(jobs=jobs, nodes={node.id: node for node in nodes})


async def skip_published(store: StateStore, published: set[str]) -> None:
    """Move the outbox past what an old copy still wants to publish although it once was."""
    cursor = ""
    for entry in await store.read_outbox("", _OUTBOX):
        if entry.message_id not in published:
            break
        cursor = entry.cursor
    if cursor:
        await store.advance_outbox(cursor)


def _named(prefix: str, records: Mapping[str, Json]) -> dict[str, Json]:
    return {
        entity.removeprefix(prefix): record
        for entity, record in records.items()
        if entity.startswith(prefix)
    }
