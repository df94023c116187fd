"""One attempt's life on this node, from PREPARE to CLEAN, told in order.

The story can be interrupted anywhere by a stop (which is durable before it is obeyed) and is
taken up again by the next agent from what the journal and the shim's files say.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Final

from frenzy_orchestrator.adapters import processes
from frenzy_orchestrator.adapters.diskuse import excess
from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.journal import STAGES, AttemptFolder
from frenzy_orchestrator.adapters.launching import Launcher
from frenzy_orchestrator.adapters.preparation import Preparation, Refused
from frenzy_orchestrator.adapters.processes import ShimHost, ShimProcess
from frenzy_orchestrator.adapters.rendezvous import RendezvousPorts, endpoint
from frenzy_orchestrator.adapters.secrets import SecretSource
from frenzy_orchestrator.core.exits import (
    NEVER_RAN,
    Ending,
    blame_disk,
    judge,
    may_be_disk,
    root_cause,
)
from frenzy_orchestrator.core.reconcile import AttemptKey, Held, Stage
from frenzy_orchestrator.outputs import Outputs, OutputTools
from frenzy_orchestrator.release import Release
from frenzy_orchestrator.shim.files import write_atomically, write_json
from frenzy_orchestrator.shim.launch import LEASE, STOP
from frenzy_shared import crashpoints
from frenzy_shared.clock import Clock
from frenzy_shared.domain.job import RankOutcome, StopReason
from frenzy_shared.errors import StorageFull, Unavailable
from frenzy_shared.messages.v1 import AttemptPhase, DesiredAttempt, EvidenceKind, Phase
from frenzy_shared.runtime import cancel, wait_any
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_TICK_S: Final = 0.25
_START_TICK_S: Final = 0.02
_OTHER_SHIM_S: Final = 3.0  # how long the shim of an earlier agent may take to show itself
_KILL_TICK_S: Final = 0.1
_STUCK_AFTER_S: Final = 60.0  # SIGKILL that has not worked for so long will not (uninterruptible)
_FULL_DISK_RETRY_S: Final = 2.0
_QUOTA_GRACE_S: Final = 2.0

_OVER: Final = frozenset({AttemptPhase.EXITED, AttemptPhase.REFUSED, AttemptPhase.CLEAN})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTools:
    """What an attempt works with; shared by all attempts of the node."""

    address: str
    clock: Clock
    ledger: EvidenceLedger
    preparation: Preparation
    ports: RendezvousPorts
    secrets: SecretSource
    launcher: Launcher
    shims: ShimHost
    outputs: OutputTools
    telemetry: Telemetry
    changed: asyncio.Event  # set when there is evidence to publish
    disk_bytes: int = 0  # that an attempt may fill; 0: no bound


class Attempt:
    """One attempt. ``run`` is its only task; ``go`` and ``stop`` are called from outside."""

    def __init__(self, folder: AttemptFolder, tools: AttemptTools) -> None:
        """Take up the attempt where its folder says."""
        self.folder = folder
        self.stuck: tuple[int, ...] = ()  # pids that SIGKILL does not end
        self._tools = tools
        self._begin = asyncio.Event()  # the ranks are to be started
        self._go = asyncio.Event()  # and to train
        self._stop = asyncio.Event()
        self._port: socket.socket | None = None
        self._outputs = Outputs(folder, tools.outputs)
        self._release = Release(folder=folder, outputs=self._outputs, preparation=tools.preparation)
        self._secrets: Mapping[str, str] = {}  # in memory only, from GO to the shim's start
        if folder.tombstoned:
            self._stop.set()
            return
        order = folder.journal.order
        if order.phase is Phase.GO:
            self._go.set()
        if order.warm or order.phase is Phase.GO:
            self._begin.set()

    @property
    def key(self) -> AttemptKey:
        """Return the attempt's name."""
        return self.folder.key

    @property
    def held(self) -> Held:
        """Return what decisions need to know."""
        stage = STAGES[self.folder.journal.phase]
        if stage is Stage.PREPARED and self._begin.is_set():
            stage = Stage.ACTIVE if self._go.is_set() else Stage.WARMING
        return Held(stage=stage, buried=self._stop.is_set())

    @property
    def device_bytes(self) -> Mapping[str, int]:
        """Return what each device's rank last reported to hold."""
        return self._outputs.device_bytes

    def warm_up(self, order: DesiredAttempt) -> None:
        """Start the ranks of what was prepared; they get ready and wait for GO.

        Raises:
            StorageFull: the order is not recorded and not obeyed.
        """
        if not self._stop.is_set() and not self._begin.is_set():
            self._obey(order, warm=True)
            crashpoints.reach("agent.after-warm-up")
            self._begin.set()

    def go(self, order: DesiredAttempt) -> None:
        """Start the ranks of what was prepared, or let those train that wait.

        The order says where they meet, and for ranks that wait, from which step they go on.

        Raises:
            StorageFull: the order is not recorded and not obeyed.
        """
        if not self._stop.is_set() and not self._go.is_set():
            self._obey(order, phase=Phase.GO, resume_step=order.resume_step)
            crashpoints.reach("agent.after-go")
            self._go.set()
            self._begin.set()

    def stop(self, reason: StopReason, grace_s: float, message: str = "") -> None:
        """End the attempt for ever: tombstone first, then everything else.

        Raises:
            StorageFull: there is no tombstone, and nothing was stopped.
        """
        self.folder.bury(reason, grace_s, message)
        crashpoints.reach("agent.after-tombstone")
        self._stop.set()

    def renew_lease(self, answered_at: float) -> None:
        """Tell the shim when the control plane last answered (seconds since boot)."""
        if self.held.stage in (Stage.WARMING, Stage.ACTIVE):
            # Not fsynced: the lease means nothing after a power loss.
            write_atomically(self.folder.path / LEASE, f"{answered_at}".encode(), durable=False)

    async def run(self) -> None:
        """Live until nothing of the attempt is left and the journal says so."""
        order = self.folder.journal.order
        with self._tools.telemetry.span(
            "attempt", parent=order.traceparent, job=order.job, attempt=order.attempt
        ):
            try:
                await self._live()
            finally:
                self._release_port()

    async def _live(self) -> None:
        if self._phase is AttemptPhase.PREPARING:
            await self._unless_stopped(self._prepare())
        if self._phase is AttemptPhase.PREPARED and not processes.has_run(self.folder.path):
            await self._unless_stopped(self._await_go())
        over = self._phase in _OVER
        forbidden = self._stop.is_set() and not processes.has_run(self.folder.path)
        if not over and not forbidden:  # else nothing was started, and the tombstone forbids it
            await self._see_through()
        if self._phase is not AttemptPhase.CLEAN:
            await self._finish()

    def _obey(self, order: DesiredAttempt, **changes: object) -> None:
        """Record what an order adds to the prepared one."""
        told = {"rendezvous": order.rendezvous, "grace_s": order.grace_s, **changes}
        self.folder.record(order=self.folder.journal.order.model_copy(update=told))

    @property
    def _phase(self) -> AttemptPhase:
        return self.folder.journal.phase

    async def _unless_stopped(self, work: Coroutine[None, None, None]) -> None:
        """Do the work, or give it up as soon as there is a stop."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await cancel(task)
        if not task.cancelled():
            task.result()

    async def _prepare(self) -> None:
        with self._tools.telemetry.span("prepare", job=self.key.job):
            result = await self._tools.preparation.prepare(self.folder)
        order = self.folder.journal.order
        if isinstance(result, Refused):
            await self._refuse(result.reason, result.message)
            return
        rendezvous = ""
        if order.hosts_rank_zero:
            try:
                self._port = self._tools.ports.reserve()
            except Unavailable as error:
                await self._refuse(StopReason.LAUNCH_REFUSED, error.message)
                return
            rendezvous = endpoint(self._tools.address, self._port.getsockname()[1])
        await self._tell(EvidenceKind.PREPARED, rendezvous=rendezvous, phase=AttemptPhase.PREPARED)

    async def _await_go(self) -> None:
        """Hold the rendezvous port until ranks start; after a restart, take it again first.

        What the ranks get in secret is asked for last: it is nowhere but in memory.
        """
        rendezvous = self.folder.journal.rendezvous
        if rendezvous and self._port is None and not self._begin.is_set():
            try:
                self._port = self._tools.ports.reserve(int(rendezvous.rpartition(":")[2]))
            except Unavailable as error:
                await self._refuse(StopReason.LAUNCH_REFUSED, error.message)
                return
        await self._begin.wait()
        secrets = await self._tools.secrets.fetch(self.folder.journal.order)
        if isinstance(secrets, Refused):
            await self._refuse(secrets.reason, secrets.message)
        else:
            self._secrets = secrets

    async def _see_through(self) -> None:
        """Start or find the shim, guard it, and conclude when nothing lives."""
        ended = asyncio.Event()
        shipping = asyncio.ensure_future(self._outputs.ship_until(ended))
        try:
            if (shim := await self._start()) is not None:
                await self._guard(shim)
            await self._kill_strays()
            ended.set()
            await shipping  # every line is in the stream before the end is told
        finally:
            await cancel(shipping)
        if self._phase is not AttemptPhase.REFUSED:
            await self._conclude()

    async def _start(self) -> ShimProcess | None:
        path = self.folder.path
        if processes.has_run(path):
            return self._tools.shims.adopt(path)
        try:
            inputs = self._tools.preparation.inputs(self.folder)
            await asyncio.to_thread(self._tools.launcher.write, self.folder, inputs)
        except (LookupError, ValueError, OSError) as error:
            await self._refuse(StopReason.LAUNCH_REFUSED, f"cannot start: {error}")
            return None
        self._release_port()
        shim = self._tools.shims.start(path, self._secrets)
        self._secrets = {}
        crashpoints.reach("agent.after-shim-start")
        # An earlier agent may have started a shim in its last moment: then ours gives way.
        patience = self._tools.clock.monotonic() + _OTHER_SHIM_S
        while not processes.has_run(path):
            if not shim.alive and self._tools.clock.monotonic() > patience:
                break
            await asyncio.sleep(_START_TICK_S)
        if processes.shim_pid(path) in (shim.pid, None):
            return shim
        await shim.wait()
        return self._tools.shims.adopt(path)

    async def _guard(self, shim: ShimProcess) -> None:
        """Watch the shim to its end: tell the start, pass on a stop, enforce the quotas."""
        gone = asyncio.Event()
        watch = asyncio.ensure_future(shim.wait())
        watch.add_done_callback(lambda _: gone.set())
        measuring = asyncio.ensure_future(self._measure_disk())
        told_at: float | None = None
        try:
            while not gone.is_set():
                await self._tell_started()
                if self._outputs.over_quota and not self._stop.is_set():
                    self._stop_for_quota(StopReason.LOG_QUOTA_EXCEEDED)
                if self._stop.is_set() and told_at is None:
                    told_at = self._tools.clock.monotonic()
                    await self._pass_on_stop(shim)
                if told_at is not None:
                    self._note_stuck(told_at + self.folder.journal.stop_grace_s)
                waits = self._phase is AttemptPhase.PREPARED and not self.folder.journal.warm
                awaited = [self._stop] * (told_at is None) + [self._go] * (not self._go.is_set())
                await wait_any(_START_TICK_S if waits else _TICK_S, gone, *awaited)
        finally:
            await cancel(watch)
            await cancel(measuring)
        await self._tell_started()

    async def _tell_started(self) -> None:
        if self._phase is not AttemptPhase.PREPARED or not processes.has_started(self.folder.path):
            return
        if self._release.given():
            await self._tell(EvidenceKind.STARTED, phase=AttemptPhase.STARTED)
        elif self._release.news:
            await self._tell(EvidenceKind.WARM, phase=AttemptPhase.PREPARED)

    async def _pass_on_stop(self, shim: ShimProcess) -> None:
        journal = self.folder.journal
        order = {"grace_s": journal.stop_grace_s, "reason": str(journal.stop_reason or "")}
        with contextlib.suppress(OSError):  # a full disk: the signal alone stops it too
            write_json(self.folder.path / STOP, order)
        shim.terminate()
        if self._phase is AttemptPhase.STARTED:
            await self._persist(lambda: self.folder.record(phase=AttemptPhase.STOPPING))

    def _stop_for_quota(self, reason: StopReason, message: str = "") -> None:
        with contextlib.suppress(StorageFull):  # tried again at the next look
            self.stop(reason, _QUOTA_GRACE_S, message)

    async def _measure_disk(self) -> None:
        """End an attempt that fills more of the disk than it may."""
        while (most := self._tools.disk_bytes) and not self._stop.is_set():
            why = await excess((self.folder.path, self.folder.tmp), most)
            self._stop_for_quota(StopReason.DISK_QUOTA_EXCEEDED, why)

    async def _kill_strays(self) -> None:
        since = self._tools.clock.monotonic()
        while await asyncio.to_thread(processes.kill_strays, self.folder.path):
            self._note_stuck(since)
            await asyncio.sleep(_KILL_TICK_S)

    def _note_stuck(self, since: float) -> None:
        if self._tools.clock.monotonic() > since + _STUCK_AFTER_S:
            self.stuck = tuple(process.pid for process in processes.strays(self.folder.path))

    async def _conclude(self) -> None:
        crashpoints.reach("agent.before-exited")
        order, reason = self.folder.journal.order, self.folder.journal.stop_reason
        ranks = tuple(entry.rank for entry in order.ranks)
        found = processes.read_ending(self.folder.path, ranks, reason)
        ending = replace(found, stop_message=self.folder.journal.stop_message)
        if ending.ended_by in NEVER_RAN:
            await self._refuse(StopReason.LAUNCH_REFUSED, ending.message)
        elif ending.ranks:
            outcomes = await self._judge(ending)
            cause = root_cause(outcomes)
            await self._tell(
                EvidenceKind.EXITED,
                phase=AttemptPhase.EXITED,
                outcomes=outcomes,
                reason=cause.reason if cause else StopReason.COMPLETED,
                message=cause.message if cause else "",
            )

    async def _judge(self, ending: Ending) -> tuple[RankOutcome, ...]:
        """Judge the ranks; a disk that is full now is why they could not go on."""
        outcomes = judge(ending, self._outputs.reports)
        if not may_be_disk(outcomes):
            return outcomes
        lack = await self._tools.preparation.lack_of_space()
        disk = f"the disk of {self._tools.outputs.node} is full ({lack})"
        return blame_disk(outcomes, disk) if lack else outcomes

    async def _refuse(self, reason: StopReason, message: str) -> None:
        await self._persist(lambda: self.folder.bury(reason, 0.0))
        self._stop.set()
        await self._tell(
            EvidenceKind.REFUSED, phase=AttemptPhase.REFUSED, reason=reason, message=message
        )

    async def _finish(self) -> None:
        """Say CLEAN once the locks of the devices that it ran on are free as well."""
        since = self._tools.clock.monotonic()
        held_devices = processes.has_started(self.folder.path)
        while held_devices and not await asyncio.to_thread(
            self._tools.launcher.locks_free, self.folder
        ):
            self._note_stuck(since)
            await asyncio.sleep(_KILL_TICK_S)
        self.stuck = ()
        await asyncio.to_thread(self.folder.discard_inputs)
        await self._tell(
            EvidenceKind.CLEAN,
            phase=AttemptPhase.CLEAN,
            clean_ms=self._tools.clock.now_ms(),
        )

    async def _tell(
        self,
        kind: EvidenceKind,
        *,
        phase: AttemptPhase,
        rendezvous: str = "",
        reason: str = "",
        message: str = "",
        outcomes: tuple[RankOutcome, ...] = (),
        clean_ms: int | None = None,
    ) -> None:
        """Record a phase together with the evidence that announces it."""

        def write() -> None:
            journal = self.folder.journal
            evidence = self._tools.ledger.make(
                kind,
                journal.order,
                rendezvous=rendezvous,
                reason=reason,
                message=message,
                outcomes=outcomes,
            )
            self.folder.record(
                evidence,
                phase=phase,
                warm=journal.warm or kind is EvidenceKind.WARM,
                rendezvous=rendezvous or journal.rendezvous,
                clean_ms=clean_ms,
            )

        await self._persist(write)
        crashpoints.reach(f"agent.after-{kind}")
        self._tools.changed.set()

    async def _persist(self, write: Callable[[], None]) -> None:
        """Write, however long the disk stays full: what happened must not be forgotten."""
        while True:
            try:
                write()
            except StorageFull as error:
                log.error("%s; trying again", error.message)  # noqa: TRY400 - not a bug
                await asyncio.sleep(_FULL_DISK_RETRY_S)
            else:
                return

    def _release_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None
