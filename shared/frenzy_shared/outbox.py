"""Publish what changes left in the store's outbox: in order, each at least once, never skipped.

A crash between publishing and advancing publishes again under the same message id, and the stream
drops the repetition. That also makes two relays at once harmless.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frenzy_shared import crashpoints
from frenzy_shared.bus.port import Bus
from frenzy_shared.errors import PayloadTooLarge, Unavailable
from frenzy_shared.messages.envelope import CloudEvent, event_type
from frenzy_shared.runtime import wait_any
from frenzy_shared.state.port import OutboxEntry, StateStore

log = logging.getLogger(__name__)

_IDLE_S = 0.5  # how long one wait for an entry lasts; an entry ends it at once
_PAUSE_S = 0.25  # after a failure, and between looks at ``leading``
_BULKY = ("placement", "outcomes")  # fields that grow with the gang


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRelay:
    """Moves entries from the store's outbox to the bus.

    ``on_published`` is told every entry right after the bus stored it, perhaps twice.
    """

    store: StateStore
    bus: Bus
    batch: int = 256
    on_published: Callable[[OutboxEntry], None] | None = None

    async def step(self) -> int:
        """Publish a batch of what is stored and not yet published; return how many.

        Raises:
            Unavailable: the store or the bus is down. What was published before is remembered.
        """
        entries = await self.store.read_outbox("", self.batch)
        done = 0
        try:
            for entry in entries:
                await self._publish(entry)
                crashpoints.reach("relay.after-publish")
                done += 1
                if self.on_published is not None:
                    self.on_published(entry)
        finally:
            if done:
                await self.store.advance_outbox(entries[done - 1].cursor)
        return done

    async def run(self, stop: asyncio.Event, *, leading: Callable[[], bool]) -> None:
        """Relay until ``stop``, while ``leading`` says that this replica is the one to do it."""
        while not stop.is_set():
            if not leading():
                await wait_any(_PAUSE_S, stop)
                continue
            try:
                if await self.step() < self.batch:
                    await self.store.wait_outbox("", _IDLE_S)
            except Unavailable as error:
                log.warning("outbox relay: %s; trying again", error.message)
                await wait_any(_PAUSE_S, stop)

    async def _publish(self, entry: OutboxEntry) -> None:
        headers = {"traceparent": entry.traceparent} if entry.traceparent else {}
        event = cloud_event(entry)
        try:
            await self.bus.publish(
                entry.subject, event.encode(), message_id=entry.message_id, headers=headers
            )
        except PayloadTooLarge:
            # One event that the bus will never take must not stop all that follow.
            log.warning("event %s is too large; sent without %s", entry.message_id, _BULKY)
            await self.bus.publish(
                entry.subject,
                cloud_event(entry, without=_BULKY).encode(),
                message_id=entry.message_id,
                headers=headers,
            )


def cloud_event(entry: OutboxEntry, *, without: tuple[str, ...] = ()) -> CloudEvent:
    """Return the event that announces an entry; ``without`` names record fields to leave out."""
    kind = entry.entity.partition(":")[0]
    project = entry.record.get("project", "cluster")
    record: dict[str, Any] = {k: v for k, v in entry.record.items() if k not in without}
    time = datetime.fromtimestamp(entry.time_ms / 1000, UTC)
    return CloudEvent(
        id=entry.message_id,
        source=f"/frenzy/{project}",
        type=event_type(kind, entry.type),
        subject=entry.entity,
        time=time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        traceparent=entry.traceparent,
        history=entry.history,
        data={**entry.data, "record": record},
    )
