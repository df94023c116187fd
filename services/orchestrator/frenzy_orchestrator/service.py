"""The node agent: heartbeat up, desired set down, one task per attempt, evidence out.

Nothing here assumes that a message arrives once, in time or in order: every heartbeat carries
the whole inventory and is answered with the whole desired set.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import ValidationError

from frenzy_orchestrator.adapters.devices.port import DeviceInventory
from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.journal import NodeJournal
from frenzy_orchestrator.attempt import Attempt, AttemptTools, cancel
from frenzy_orchestrator.core.reconcile import (
    Action,
    AttemptKey,
    Go,
    Order,
    Prepare,
    Reaffirm,
    Refuse,
    Stage,
    Standing,
    Stop,
    reconcile,
    standing,
)
from frenzy_orchestrator.metrics import AgentMetrics
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.clock import Clock
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured, StorageFull, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    DesiredAttempt,
    DesiredSet,
    EvidenceKind,
    Heartbeat,
    HeldAttempt,
)
from frenzy_shared.runtime import every

log = logging.getLogger(__name__)

_REPEAT_MS: Final = 30_000  # an answer already given is repeated at most this often
_RETRY_S: Final = 5.0
_GIVE_WAY_S: Final = 5.0
_PUBLISH_S: Final = 1.0  # evidence that could not be published is tried again after this


@dataclass(slots=True, kw_only=True)
class Agent:
    """The agent of one node. Loops: ``heartbeats`` and ``evidence``; both end with ``stop``."""

    node: str
    address: str
    boot_id: str
    heartbeat_s: float
    fence_after_s: float
    stop_grace_s: float
    keep_attempts: int
    bus: Bus
    clock: Clock
    journal: NodeJournal
    ledger: EvidenceLedger
    inventory: DeviceInventory
    tools: AttemptTools
    metrics: AgentMetrics
    epoch: int = 0
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    _tasks: dict[AttemptKey, asyncio.Task[None]] = field(default_factory=dict)
    _answered_at: float = 0.0
    _confirmed: bool = False  # an answer came to a heartbeat with our epoch
    _reregistered: bool = False

    async def heartbeats(self, stop: asyncio.Event) -> None:
        """Take up what runs here, register, then exchange state until ``stop``.

        Raises:
            Misconfigured: another agent runs under this node's name.
        """
        self._answered_at = self.clock.monotonic()
        for key in list(self.journal.attempts):
            self._take_up(key)
        pokes = await self.bus.subscribe(subjects.desired(self.node), self._poked)
        try:
            await every(self.heartbeat_s, stop, self._beat)
        finally:
            await pokes.stop()
            await self._leave()

    async def evidence(self, stop: asyncio.Event) -> None:
        """Publish evidence as it comes, oldest first, until ``stop``."""
        await every(_PUBLISH_S, stop, self._publish, wake=self.tools.changed)

    async def _beat(self) -> None:
        sent_at = self.clock.monotonic()
        heartbeat = await self._heartbeat()
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
        for attempt in self.attempts.values():
            _renew(attempt, sent_at)
        asked = {AttemptKey(job=a.job, attempt=a.attempt) for a in heartbeat.attempts}
        self._apply(desired.attempts, asked if desired.complete else ())

    async def _heartbeat(self) -> Heartbeat:
        devices = await asyncio.to_thread(self.inventory.devices)
        self._show(devices)
        return Heartbeat(
            node=self.node,
            epoch=self.epoch,
            boot_id=self.boot_id,
            address=self.address,
            devices=tuple(self._with_stuck(device) for device in devices),
            attempts=tuple(
                HeldAttempt(job=key.job, attempt=key.attempt, phase=folder.journal.phase)
                for key, folder in self.journal.attempts.items()
                if folder.journal.phase is not AttemptPhase.CLEAN or folder.journal.pending
            ),
        )

    async def _accept(self, desired: DesiredSet) -> bool:
        """Take the epoch of an answer; tell whether the answer is for us.

        Raises:
            Misconfigured: another agent has registered under our name.
        """
        if not self.epoch and not desired.fenced:
            self.epoch = desired.epoch
            log.info("registered as %s, epoch %d", self.node, self.epoch)
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
        for attempt in self.attempts.values():
            self._end(attempt, StopReason.NODE_LOST)
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=self.stop_grace_s + _GIVE_WAY_S)
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
            for attempt in self.attempts.values():
                self._end(attempt, StopReason.NODE_LOST)

    async def _poked(self, message: Message) -> None:
        """Apply a pushed, partial desired set; a bad one is dropped, the heartbeat repeats it."""
        try:
            desired = DesiredSet.decode(message.payload)
        except ValidationError as error:
            log.warning("dropped a malformed desired set: %s", error)
            return
        judged = standing(set_epoch=desired.epoch, fenced=False, own_epoch=self.epoch)
        if judged is Standing.CURRENT:
            self._apply(desired.attempts, asked=())

    def _apply(self, orders: Collection[DesiredAttempt], asked: Collection[AttemptKey]) -> None:
        by_key = {AttemptKey(job=o.job, attempt=o.attempt): o for o in orders}
        actions = reconcile(
            {key: Order(order.phase) for key, order in by_key.items()},
            {key: attempt.held for key, attempt in self.attempts.items()},
            asked=asked,
            ended=self.journal.ended,
        )
        for action in actions:
            try:
                self._act(action, by_key.get(action.key))
            except StorageFull as error:
                log.error("%s: %s", action, error.message)  # noqa: TRY400 - not a bug
                if isinstance(action, Prepare):
                    self._refuse_unrecorded(by_key[action.key], error.message)
        self._forget(wanted=by_key)

    def _act(self, action: Action, order: DesiredAttempt | None) -> None:
        attempt = self.attempts.get(action.key)
        match action:
            case Prepare(key=key) if order is not None:
                self.journal.create(order, AttemptPhase.PREPARING)
                self._take_up(key)
            case Go() if attempt is not None and order is not None:
                attempt.go(order)
                _renew(attempt, self._answered_at)
            case Stop() if attempt is not None:
                reason = _stop_reason(order.reason if order else "")
                attempt.stop(reason, order.grace_s if order else self.stop_grace_s)
            case Stop(key=key) | Refuse(key=key) if attempt is None and order is not None:
                self._bury_unknown(key, order, action)
            case Refuse() | Reaffirm():
                self._repeat(action)
            case _:
                pass  # Forget is done for all at once, with the retention rule

    def _bury_unknown(self, key: AttemptKey, order: DesiredAttempt, action: Action) -> None:
        """Record for ever that an attempt that never ran here never will."""
        folder = self.journal.create(order, AttemptPhase.STOPPING)
        folder.bury(_stop_reason(order.reason), 0.0)
        if isinstance(action, Refuse):
            refused = self.ledger.make(
                EvidenceKind.REFUSED,
                order,
                reason=StopReason.LAUNCH_REFUSED,
                message=f"{self.node}: {action.why}",
            )
            folder.record(refused, phase=AttemptPhase.REFUSED)
        self._take_up(key)

    def _repeat(self, action: Refuse | Reaffirm) -> None:
        """Say again what was said before, in case the control plane has lost it; rarely."""
        folder = self.attempts[action.key].folder
        now = self.clock.now_ms()
        spoken = max(folder.journal.reaffirmed_ms, folder.journal.clean_ms or now)
        if folder.journal.pending or now - spoken < _REPEAT_MS:
            return
        order = folder.journal.order
        clean = self.ledger.make(EvidenceKind.CLEAN, order)
        folder.record(clean, reaffirmed_ms=now)
        self.tools.changed.set()

    def _refuse_unrecorded(self, order: DesiredAttempt, why: str) -> None:
        """Refuse an attempt that the full disk does not even let us record."""

        async def tell() -> None:
            for kind in (EvidenceKind.REFUSED, EvidenceKind.CLEAN):
                evidence = self.ledger.make(
                    kind, order, reason=StopReason.LAUNCH_REFUSED, message=why
                )
                await self.ledger.publish(self.bus, evidence, self.epoch)

        key = AttemptKey(job=order.job, attempt=order.attempt)
        if key not in self._tasks:
            self._start_task(key, tell())

    def _take_up(self, key: AttemptKey) -> None:
        attempt = Attempt(self.journal.attempts[key], self.tools)
        self.attempts[key] = attempt
        if attempt.held.stage is not Stage.CLEAN:
            self._start_task(key, self._live(key))

    def _start_task(self, key: AttemptKey, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{key.job}.{key.attempt}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _live(self, key: AttemptKey) -> None:
        """Run an attempt to its end; a failure of the agent's own is told and tried again."""
        while True:
            try:
                await self.attempts[key].run()
            except Exception:
                log.exception("attempt %s.%d: the agent failed; again", key.job, key.attempt)
                await asyncio.sleep(_RETRY_S)
                self.attempts[key] = Attempt(self.journal.attempts[key], self.tools)
            else:
                return

    def _end(self, attempt: Attempt, reason: StopReason) -> None:
        held = attempt.held
        if held.stage is Stage.CLEAN or held.buried:
            return
        try:
            attempt.stop(reason, self.stop_grace_s)
        except StorageFull as error:  # the shim's own lease ends it all the same
            log.error("cannot stop %s: %s", attempt.key, error.message)  # noqa: TRY400 - not a bug

    async def _publish(self) -> None:
        self.metrics.show_pending(self.ledger.pending)
        if self.epoch:
            await self.ledger.publish_pending(self.bus, self.epoch)

    def _forget(self, wanted: Collection[AttemptKey]) -> None:
        """Remove finished attempts beyond the newest ``keep_attempts``."""
        finished = sorted(
            (
                (attempt.folder.journal.clean_ms or 0, key)
                for key, attempt in self.attempts.items()
                if attempt.held.stage is Stage.CLEAN
                and not attempt.folder.journal.pending
                and key not in self._tasks
            ),
            reverse=True,
        )
        for _, key in finished[self.keep_attempts :]:
            if key not in wanted:
                with contextlib.suppress(StorageFull):
                    self.journal.forget(key)
                    del self.attempts[key]
        self.journal.keep_reserve()

    def _with_stuck(self, device: Device) -> Device:
        """Mark a device whose attempt survives SIGKILL: it must not be given away."""
        for attempt in self.attempts.values():
            order = attempt.folder.journal.order
            if attempt.stuck and any(rank.device == device.id for rank in order.ranks):
                pids = ", ".join(str(pid) for pid in attempt.stuck)
                problem = f"{order.job}.{order.attempt} does not die (pid {pids})"
                return replace(device, problem=problem)
        return device

    def _show(self, devices: Collection[Device]) -> None:
        reported: dict[str, int] = {}
        for attempt in self.attempts.values():
            if attempt.held.stage is Stage.ACTIVE:
                reported |= attempt.device_bytes
        used: Mapping[str, int] = {**reported, **self.inventory.used_bytes()}
        for device in devices:
            self.metrics.show_device(
                device.id,
                device.kind,
                emulated=device.emulated,
                used_bytes=used.get(device.id, 0),
            )
        phases = Counter(str(f.journal.phase) for f in self.journal.attempts.values())
        self.metrics.show_attempts(dict(phases))

    async def _leave(self) -> None:
        """Let go of every attempt; what runs keeps running under its shim."""
        for task in list(self._tasks.values()):
            await cancel(task)


def _renew(attempt: Attempt, answered_at: float) -> None:
    try:
        attempt.renew_lease(answered_at)
    except OSError as error:  # a full disk: the shim fences if this goes on for too long
        log.error("cannot renew the lease of %s: %s", attempt.key, error)  # noqa: TRY400


def _stop_reason(text: str) -> StopReason:
    try:
        return StopReason(text)
    except ValueError:  # none, or a newer control plane's word
        return StopReason.SUPERSEDED
