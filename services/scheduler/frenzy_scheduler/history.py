"""Read what the streams and the store remember, for the recovery of the store."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from frenzy_scheduler.changes import PLAN
from frenzy_scheduler.core.recovery import Witness
from frenzy_scheduler.safemode import Mark, mark_of
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.domain.cluster import FORGOTTEN, NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.domain.plan import PlanSet, ResourcePlan
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import from_json
from frenzy_shared.messages.envelope import CloudEvent, short_kind
from frenzy_shared.state.decisions import STORED
from frenzy_shared.state.keeper import Decision
from frenzy_shared.state.port import Json, StateStore

log = logging.getLogger(__name__)

_DECIDED: Final = ("token:", "project:")  # what administrators decide, beside nodes' drains
_TOLD: Final = ("version", "state", "reason", "message", "attempt")
_PAGE: Final = 1000
_OUTBOX: Final = 10_000


@dataclass(slots=True, kw_only=True)
class Past:
    """What the event history says, newest version of each entity."""

    records: dict[str, Json] = field(default_factory=dict[str, Json])  # by entity
    specs: dict[str, Json] = field(default_factory=dict[str, Json])  # by job
    plans: dict[str, dict[str, Json]] = field(default_factory=dict[str, dict[str, Json]])  # by job
    timelines: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])  # by job
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])  # by entity
    drains: dict[str, Json] = field(default_factory=dict[str, Json])  # by node, as decided last
    mark: Mark | None = None
    published: set[str] = field(default_factory=set[str])  # of the ids that were asked for

    def witness(self) -> Witness:
        """Return the records as the core takes them."""
        jobs = _named("job:", self.records)
        return Witness(
            jobs={JobId(name): from_json(JobRecord, record) for name, record in jobs.items()},
            nodes=_nodes(_named("node:", self.records)),
            drains=_nodes(self.drains),
        )

    def plans_of(self, record: JobRecord) -> PlanSet | None:
        """Return the plan that a placed job runs with; None when no event has it."""
        placement = record.placement
        plan = self.plans.get(record.id, {}).get(placement.plan) if placement else None
        if plan is None:
            return None
        return PlanSet(plans=(from_json(ResourcePlan, plan),), refused=(), kinds_digest="")

    def decisions_after(self, number: int) -> tuple[Decision, ...]:
        """Return the newest decisions that a store which counted up to a number lacks, in order."""
        missing = (one for one in self.decisions.values() if one.version > number)
        return tuple(sorted(missing, key=lambda one: one.version))

    def take(self, message: Message, wanted: set[str]) -> None:
        """Take in one event or decision, in the stream's order."""
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
        if event.subject.startswith(_DECIDED) or message.stream == subjects.DECISIONS_STREAM:
            self._decide(event, record)
        else:
            self._change(event, record)

    def _decide(self, event: CloudEvent, record: Json) -> None:
        kind, _, name = event.subject.partition(":")
        if kind == "node":
            self.drains[name] = record
        elif STORED in event.data:  # else it is the event of what a decision keeps
            self.decisions[event.subject] = Decision(
                kind=kind, id=name, version=record["version"], stored=event.data[STORED]
            )

    def _change(self, event: CloudEvent, record: Json) -> None:
        before = self.records.get(event.subject)
        if before is not None and before["version"] > record["version"]:
            return
        if short_kind(event.type) == FORGOTTEN:
            self.records.pop(event.subject, None)
            return
        self.records[event.subject] = record
        kind, _, name = event.subject.partition(":")
        if kind == "job":
            self._tell(name, before, record)
            if isinstance(spec := event.data.get("spec"), dict):
                self.specs[name] = spec
            if isinstance(plan := event.data.get(PLAN), dict):
                self.plans.setdefault(name, {})[plan["id"]] = plan

    def _tell(self, job: str, before: Json | None, record: Json) -> None:
        if before is None or before["state"] != record["state"]:
            entry: dict[str, Any] = {name: record[name] for name in _TOLD}
            entry["time_ms"] = record["updated_ms"]
            self.timelines.setdefault(job, []).append(entry)


async def read_past(bus: Bus, store: StateStore) -> Past:
    """Read the kept decisions and the whole event stream.

    Which of the store's own messages are in them is noted.

    Raises:
        Unavailable: the bus or the store is.
    """
    wanted = {entry.message_id for entry in await store.read_outbox("", _OUTBOX)}
    past = Past()
    # Events last: the newest of them says how far the store was.
    for stream, subject in (
        (subjects.DECISIONS_STREAM, subjects.ALL_DECISIONS),
        (subjects.EVENTS_STREAM, subjects.ALL_EVENTS),
    ):
        await _take_all(past, bus, stream, subject, wanted)
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


async def _take_all(past: Past, bus: Bus, stream: str, subject: str, wanted: set[str]) -> None:
    last = await bus.last_sequence(stream, subject)  # of what is there, not what ever was
    if not last:
        return
    messages = bus.read(stream, subject, after_sequence=0)
    async with contextlib.aclosing(messages):
        async for message in messages:
            if message is not None:
                past.take(message, wanted)
                if message.sequence >= last:
                    return


def _nodes(records: Mapping[str, Json]) -> dict[NodeId, NodeRecord]:
    return {NodeId(name): from_json(NodeRecord, record) for name, record in records.items()}


def _named(prefix: str, records: Mapping[str, Json]) -> dict[str, Json]:
    return {
        entity.removeprefix(prefix): record
        for entity, record in records.items()
        if entity.startswith(prefix)
    }
