"""The node agent: heartbeat up, desired set down, evidence out.

Nothing here assumes that a message arrives once, in time or in order: every heartbeat carries
the whole inventory and is answered with the whole desired set.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import ValidationError

from frenzy_orchestrator.adapters.checkpoints import OldCheckpoints
from frenzy_orchestrator.adapters.devices.port import DeviceInventory
from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.threads import in_own_thread
from frenzy_orchestrator.core.reconcile import AttemptKey, Standing, standing
from frenzy_orchestrator.metrics import AgentMetrics
from frenzy_orchestrator.roster import Roster
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.clock import Clock
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import DesiredSet, Heartbeat
from frenzy_shared.runtime import every

log = logging.getLogger(__name__)

_GIVE_WAY_S: Final = 5.0  # beyond the grace, for what was stopped to be gone
_COLLECT_S: Final = 60.0
_PUBLISH_S: Final = 1.0  # evidence that could not be published is tried again after this


@dataclass(slots=True, kw_only=True)
class Agent:
    """The agent of one node. Its loops are public and end with ``stop``."""

    node: str
    address: str
    boot_id: str
    heartbeat_s: float
    fence_after_s: float
    bus: Bus
    clock: Clock
    ledger: EvidenceLedger
    inventory: DeviceInventory
    roster: Roster
    metrics: AgentMetrics
    old_checkpoints: OldCheckpoints
    changed: asyncio.Event  # set when there is evidence to publish
    labels: tuple[tuple[str, str], ...] = ()
    host_memory_bytes: int = 0
    epoch: int = 0
    _answered_at: float = 0.0
    _confirmed: bool = False  # an answer came to a heartbeat with our epoch
    _reregistered: bool = False
    _again: asyncio.Event = field(default_factory=asyncio.Event)  # beat without waiting

    async def heartbeats(self, stop: asyncio.Event) -> None:
        """Take up what runs here, register, then exchange state until ``stop``.

        Raises:
            Misconfigured: another agent runs under this node's name.
        """
        self._answered_at = self.clock.monotonic()
        self.roster.take_up_all()
        pokes = await self.bus.subscribe(subjects.desired(self.node), self._poked)
        try:
            await every(self.heartbeat_s, stop, self._beat, wake=self._again)
        finally:
            await pokes.stop()
            await self.roster.leave()

    async def evidence(self, stop: asyncio.Event) -> None:
        """Publish evidence as it comes, oldest first, until ``stop``."""
        await every(_PUBLISH_S, stop, self._publish, wake=self.changed)

    async def collection(self, stop: asyncio.Event) -> None:
        """Remove checkpoints of jobs that ended long ago, until ``stop``."""
        await every(_COLLECT_S, stop, self.old_checkpoints.work)

    async def _beat(self) -> None:
        heartbeat = await self._heartbeat()
        sent_at = self.clock.monotonic()
        try:
            reply = await self.bus.request(
                subjects.heartbeat(self.node), heartbeat.encode(), timeout_s=self.heartbeat_s
            )
            desired = DesiredSet.decode(reply)
        except (Unavailable, ValidationError) as error:
            self._unanswered(error)
            return
        if not await self._accept(desired):
            return
        self._answered_at = sent_at  # what counts is when the control plane knew of us
        self.metrics.answered(self.clock.monotonic() - sent_at)
        asked = {AttemptKey(job=a.job, attempt=a.attempt) for a in heartbeat.attempts}
        self._apply(desired, asked if desired.complete else set())
        self.old_checkpoints.hear(heartbeat.checkpoints, desired.over)

    async def _heartbeat(self) -> Heartbeat:
        # Whatever keeps the event loop's pool busy, heartbeats go on.
        devices, used = await in_own_thread(self._look)
        self._show(devices, used)
        return Heartbeat(
            node=self.node,
            epoch=self.epoch,
            boot_id=self.boot_id,
            address=self.address,
            devices=devices,
            attempts=self.roster.held(),
            labels=self.labels,
            host_memory_bytes=self.host_memory_bytes,
            checkpoints=self.old_checkpoints.asking,
        )

    def _look(self) -> tuple[tuple[Device, ...], Mapping[str, int]]:
        devices = tuple(
            replace(device, problem=self.roster.problem_of(device.id) or device.problem)
            for device in self.inventory.devices()
        )
        return devices, self.inventory.used_bytes()

    async def _accept(self, desired: DesiredSet) -> bool:
        """Take the epoch of an answer; tell whether the answer is for us.

        Raises:
            Misconfigured: another agent has registered under our name.
        """
        if not self.epoch and not desired.fenced:
            self.epoch = desired.epoch
            log.info("registered as %s, epoch %d", self.node, self.epoch)
            self._again.set()  # the node is UP only after a heartbeat with this epoch
            return True
        judged = standing(set_epoch=desired.epoch, fenced=desired.fenced, own_epoch=self.epoch)
        if judged is Standing.FENCED:
            await self._give_way()
        self._confirmed |= judged is Standing.CURRENT
        return judged is Standing.CURRENT

    async def _give_way(self) -> None:
        """Register once more if our registration was never confirmed; else end what runs here.

        A registration whose answer was lost is repeated, and the first answer may come late.
        """
        if not self._confirmed and not self._reregistered:
            self._reregistered = True
            self.epoch = 0
            return
        self.roster.end_all(StopReason.NODE_LOST)
        await self.roster.wait_all(self.roster.grace_s + _GIVE_WAY_S)
        raise Misconfigured(
            f"another agent runs as node {self.node}: it registered after this one",
            suggestions=("stop it, or give this one its own FRENZY_NODE and FRENZY_DATA_DIR",),
        )

    def _unanswered(self, error: Exception) -> None:
        """Note a missing answer; after ``fence_after_s`` without any, end what runs."""
        self.metrics.missed()
        silent_s = self.clock.monotonic() - self._answered_at
        log.warning("no answer from the control plane for %.0f s: %s", silent_s, error)
        if silent_s > self.fence_after_s:
            self.roster.end_all(StopReason.NODE_LOST)

    async def _poked(self, message: Message) -> None:
        """Apply a pushed, partial desired set; a bad one is dropped, the heartbeat repeats it."""
        try:
            desired = DesiredSet.decode(message.payload)
        except ValidationError as error:
            log.warning("dropped a malformed desired set: %s", error)
            return
        judged = standing(set_epoch=desired.epoch, fenced=False, own_epoch=self.epoch)
        if judged is Standing.CURRENT:
            self._apply(desired, set())

    def _apply(self, desired: DesiredSet, asked: set[AttemptKey]) -> None:
        self.roster.apply(desired.attempts, asked=asked, epoch=self.epoch)
        self.roster.renew_leases(self._answered_at)  # after: what was just started needs one too

    async def _publish(self) -> None:
        self.metrics.show_pending(self.ledger.pending)
        if self.epoch:
            await self.ledger.publish_pending(self.bus, self.epoch)

    def _show(self, devices: tuple[Device, ...], used: Mapping[str, int]) -> None:
        held = {**self.roster.device_bytes(), **used}
        for device in devices:
            self.metrics.show_device(
                device.id,
                device.kind,
                emulated=device.emulated,
                used_bytes=held.get(device.id, 0),
            )
        self.metrics.show_attempts(Counter(str(a.phase) for a in self.roster.held()))
