"""Whether the leader can build on what the store says, and what nodes hold while it cannot.

A store that was restored from an old copy, or emptied, is told by two witnesses that it cannot
have taken along: the event stream carries the store's place in its history, and a running agent
knows how often it registered.
"""

import contextlib
import logging
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from frenzy_scheduler.core.recovery import Held, Inventory
from frenzy_shared.bus.port import Bus
from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.envelope import CloudEvent
from frenzy_shared.messages.v1 import Heartbeat
from frenzy_shared.state.keeper import History, Keeper

log = logging.getLogger(__name__)

_QUIET: Final = 2  # times that a reader finds nothing where the newest message should be


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a history certainly was: the store's ``gen``, and its count of messages."""

    gen: str
    number: int


@dataclass(kw_only=True)
class SafeMode:
    """The leader's view. ``why`` is "" while everything is in order."""

    keeper: Keeper
    bus: Bus
    why: str = ""
    inventories: dict[NodeId, Inventory] = field(default_factory=dict)
    _seen: History | None = None

    async def look(self, *, gained: bool) -> None:
        """Judge the store's history; ``gained``: the lease has just become ours.

        The store is asked after the lease is ours, so that a copy restored later has not got it.

        Raises:
            Unavailable: the store is, or for a new leader the bus: it cannot judge then.
        """
        here = await self.keeper.history()
        if here.safe_mode:
            self._begin(here.safe_mode)
            return
        problem = await self._since_last_leader(here) if gained else self._since_last_look(here)
        if problem:
            await self.enter(problem)
            return
        if self.why:
            log.warning("SAFE MODE is over")
        self.why = ""
        self.inventories.clear()
        self._seen = here

    async def enter(self, why: str) -> None:
        """Stop everything that builds on the store, here and in all other services."""
        self._begin(why)
        await self.keeper.enter_safe_mode(why)

    async def leave(self) -> None:
        """Go on with a store that was put right: its history is another one than was seen.

        Raises:
            Unavailable: the store is.
        """
        self._seen = None
        await self.look(gained=False)

    def note(self, heartbeat: Heartbeat, epoch: int) -> None:
        """Remember what a node holds."""
        self.inventories[NodeId(heartbeat.node)] = Inventory(
            node=NodeId(heartbeat.node),
            epoch=epoch,
            devices=heartbeat.devices,
            boot_id=heartbeat.boot_id,
            address=heartbeat.address,
            labels=heartbeat.labels,
            host_memory_bytes=heartbeat.host_memory_bytes,
            held=tuple(
                Held(
                    node=NodeId(heartbeat.node),
                    job=JobId(held.job),
                    attempt=held.attempt,
                    devices=held.devices,
                )
                for held in heartbeat.held
            ),
        )

    def _begin(self, why: str) -> None:
        if not self.why:
            log.critical("SAFE MODE: %s; nothing is placed or released", why)
        self.why = why

    def _since_last_look(self, here: History) -> str:
        seen = self._seen
        if seen is None or (here.gen == seen.gen and here.posted >= seen.posted):
            return ""
        return _describe(here, Mark(gen=seen.gen, number=seen.posted))

    async def _since_last_leader(self, here: History) -> str:
        mark = await last_mark(self.bus)
        if mark is None or (mark.gen == here.gen and mark.number <= here.posted):
            return ""
        return _describe(here, mark)


def ahead_of(node: NodeRecord | None, heartbeat: Heartbeat, gone_epoch: int) -> str:
    """Say how a node knows more of itself than the store does; "" when it does not.

    A node without a record may be one that was forgotten: none of those had a higher epoch than
    ``gone_epoch``.
    """
    known = node.epoch if node else gone_epoch
    if heartbeat.epoch <= known:
        return ""
    return (
        f"node {heartbeat.node} has registered {heartbeat.epoch} times, "
        f"and the store knows of {known}: it is an old copy, or was emptied"
    )


async def last_mark(bus: Bus) -> Mark | None:
    """Return how far the history was when the newest event was published; None: nobody knows.

    Where all events are older than they are kept, the newest decision tells.

    Raises:
        Unavailable: the bus is.
    """
    return await _newest_mark(
        bus, subjects.EVENTS_STREAM, subjects.ALL_EVENTS
    ) or await _newest_mark(bus, subjects.DECISIONS_STREAM, subjects.ALL_DECISIONS)


async def _newest_mark(bus: Bus, stream: str, subject: str) -> Mark | None:
    last = await bus.last_sequence(stream)
    if not last:
        return None
    events = bus.read(stream, subject, after_sequence=last - 1)
    quiet = 0
    async with contextlib.aclosing(events):
        async for message in events:
            if message is not None:
                return _mark_in(message.payload)
            quiet += 1
            if not bus.connected:
                raise Unavailable("the event history cannot be read; nobody leads without it")
            if quiet >= _QUIET:  # its age was over: the stream is empty
                return None
    return None


def mark_of(event: CloudEvent) -> Mark | None:
    """Return the mark that an event carries; None when it has none."""
    gen, _, number = event.history.partition(":")
    return Mark(gen=gen, number=int(number)) if gen and number.isdecimal() else None


def _mark_in(payload: bytes) -> Mark | None:
    try:
        return mark_of(CloudEvent.decode(payload))
    except ValidationError as error:
        log.warning("the newest event cannot be read: %s", error)
        return None


def _describe(here: History, mark: Mark) -> str:
    if here.gen != mark.gen:
        return "the store is not the one that the event history is of: it was emptied or replaced"
    return (
        f"the store has {here.posted} of the {mark.number} changes that were published: "
        "it is an old copy"
    )
