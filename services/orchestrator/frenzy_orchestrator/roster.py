"""The attempts of one node: each held attempt, its task, and what a desired set makes of them."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Final

from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.journal import NodeJournal
from frenzy_orchestrator.attempt import Attempt, AttemptTools
from frenzy_orchestrator.core.reconcile import (
    Action,
    AttemptKey,
    Go,
    Order,
    Prepare,
    Reaffirm,
    Refuse,
    Stage,
    Stop,
    WarmUp,
    reconcile,
)
from frenzy_shared import crashpoints
from frenzy_shared.bus.port import Bus
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import StorageFull
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    DesiredAttempt,
    Evidence,
    EvidenceKind,
    HeldAttempt,
    Phase,
)
from frenzy_shared.runtime import cancel

log = logging.getLogger(__name__)

_REPEAT_MS: Final = 30_000  # an answer already given is repeated at most this often
_RETRY_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Roster:
    """Every attempt that this node knows, and one task for each that is not over.

    ``grace_s`` is between SIGTERM and SIGKILL where no order says another.
    """

    journal: NodeJournal
    ledger: EvidenceLedger
    tools: AttemptTools
    bus: Bus
    node: str
    grace_s: float
    keep_attempts: int
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    _tasks: dict[AttemptKey, asyncio.Task[None]] = field(default_factory=dict)

    def take_up_all(self) -> None:
        """Continue every attempt of the journal where an earlier agent left it."""
        for key in list(self.journal.attempts):
            self._take_up(key)

    def held(self) -> tuple[HeldAttempt, ...]:
        """Return what the control plane should know of."""
        return tuple(
            HeldAttempt(
                job=key.job,
                attempt=key.attempt,
                phase=folder.journal.phase,
                devices=tuple(rank.device for rank in folder.journal.order.ranks),
                stuck=self._stuck(key),
            )
            for key, folder in self.journal.attempts.items()
            if folder.journal.phase is not AttemptPhase.CLEAN or folder.journal.pending
        )

    def apply(
        self, orders: Collection[DesiredAttempt], *, asked: Collection[AttemptKey], epoch: int
    ) -> None:
        """Act on a desired set; ``asked`` are the attempts whose absence from it means stop."""
        by_key = {AttemptKey(job=o.job, attempt=o.attempt): o for o in orders}
        actions = reconcile(
            {key: _order(order) for key, order in by_key.items()},
            {key: attempt.held for key, attempt in self.attempts.items()},
            asked=asked,
            ended=self.journal.ended,
        )
        for action in actions:
            try:
                self._act(action, by_key.get(action.key))
            except (StorageFull, OSError) as error:  # the next set brings the order again
                log.error("%s: %s", action, error)  # noqa: TRY400 - not a bug
                if isinstance(action, Prepare):
                    self._refuse_unrecorded(by_key[action.key], str(error), epoch)
        self._forget(wanted=by_key)

    def renew_leases(self, answered_at: float) -> None:
        """Tell every shim when the control plane last answered."""
        for attempt in self.attempts.values():
            try:
                attempt.renew_lease(answered_at)
            except OSError as error:  # a full disk: the shim fences if this lasts
                log.error("no new lease for %s: %s", attempt.key, error)  # noqa: TRY400 - not a bug

    def end_all(self, reason: StopReason) -> None:
        """Stop everything that is not over yet."""
        for attempt in self.attempts.values():
            if attempt.held.stage is not Stage.CLEAN and not attempt.held.buried:
                try:
                    attempt.stop(reason, self.grace_s)
                except StorageFull as error:  # the shim's own lease ends it all the same
                    log.error("cannot stop %s: %s", attempt.key, error)  # noqa: TRY400 - not a bug

    async def wait_all(self, timeout_s: float) -> None:
        """Wait until every attempt is over, at most ``timeout_s``."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_s)

    async def leave(self) -> None:
        """Let go of every attempt; what runs keeps running under its shim."""
        for task in list(self._tasks.values()):
            await cancel(task)

    def problem_of(self, device: str) -> str:
        """Say why a device must not be given away: an attempt on it survives SIGKILL."""
        for attempt in self.attempts.values():
            ranks = attempt.folder.journal.order.ranks
            if attempt.stuck and any(rank.device == device for rank in ranks):
                return self._stuck(attempt.key)
        return ""

    def device_bytes(self) -> Mapping[str, int]:
        """Return what the ranks that run now have reported per device."""
        used: dict[str, int] = {}
        for attempt in self.attempts.values():
            if attempt.held.stage is Stage.ACTIVE:
                used |= attempt.device_bytes
        return used

    def _stuck(self, key: AttemptKey) -> str:
        """Say which processes of an attempt survive SIGKILL; "" when none does."""
        attempt = self.attempts.get(key)
        if attempt is None or not attempt.stuck:
            return ""
        pids = ", ".join(str(pid) for pid in attempt.stuck)
        return f"{key.job}.{key.attempt} does not die (pid {pids})"

    def _act(self, action: Action, order: DesiredAttempt | None) -> None:
        attempt = self.attempts.get(action.key)
        match action:
            case Prepare(key=key) if order is not None:
                crashpoints.reach("agent.before-journal")
                self.journal.create(order, AttemptPhase.PREPARING)
                crashpoints.reach("agent.after-journal")
                self._take_up(key)
            case WarmUp() if attempt is not None and order is not None:
                attempt.warm_up(order)
            case Go() if attempt is not None and order is not None:
                attempt.go(order)
            case Stop() if attempt is not None:
                reason = _stop_reason(order.reason if order else "")
                attempt.stop(reason, order.grace_s if order else self.grace_s)
            case Stop() | Refuse() if attempt is None and order is not None:
                self._bury_unknown(action, order)
            case Refuse(key=key) | Reaffirm(key=key):
                self._repeat(key)
            case _:  # Forget: done for all at once, by the retention rule
                return

    def _bury_unknown(self, action: Stop | Refuse, order: DesiredAttempt) -> None:
        """Record for ever that an attempt that never ran here never will."""
        folder = self.journal.create(order, AttemptPhase.STOPPING)
        folder.bury(_stop_reason(order.reason), 0.0)
        if isinstance(action, Refuse):
            refused = self._refusal(order, f"{self.node}: {action.why}")
            folder.record(refused, phase=AttemptPhase.REFUSED)
        self._take_up(action.key)

    def _repeat(self, key: AttemptKey) -> None:
        """Say CLEAN again, in case the control plane has lost it; rarely."""
        folder = self.attempts[key].folder
        now = self.tools.clock.now_ms()
        spoken = max(folder.journal.reaffirmed_ms, folder.journal.clean_ms or now)
        if not folder.journal.pending and now - spoken >= _REPEAT_MS:
            clean = self.ledger.make(EvidenceKind.CLEAN, folder.journal.order)
            folder.record(clean, reaffirmed_ms=now)
            self.tools.changed.set()

    def _refuse_unrecorded(self, order: DesiredAttempt, why: str, epoch: int) -> None:
        """Refuse an attempt that the full disk does not even let us record."""

        async def tell() -> None:
            clean = self.ledger.make(EvidenceKind.CLEAN, order)
            for evidence in (self._refusal(order, why), clean):
                await self.ledger.publish(self.bus, evidence, epoch)

        key = AttemptKey(job=order.job, attempt=order.attempt)
        if key not in self._tasks:
            self._start_task(key, tell())

    def _refusal(self, order: DesiredAttempt, why: str) -> Evidence:
        reason = StopReason.LAUNCH_REFUSED
        return self.ledger.make(EvidenceKind.REFUSED, order, reason=reason, message=why)

    def _take_up(self, key: AttemptKey) -> None:
        attempt = Attempt(self.journal.attempts[key], self.tools)
        self.attempts[key] = attempt
        if attempt.held.stage is not Stage.CLEAN:
            self._start_task(key, self._live(key))

    def _start_task(self, key: AttemptKey, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{key.job}.{key.attempt}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: AttemptKey, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s.%d was not told: %s", key.job, key.attempt, error)

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
        try:
            for _, key in finished[self.keep_attempts :]:
                if key not in wanted:
                    self.journal.forget(key)
                    del self.attempts[key]
            self.journal.keep_reserve()
        except StorageFull as error:
            log.warning("finished attempts stay for now: %s", error)


def _order(order: DesiredAttempt) -> Order:
    """Return what is wanted; an older agent takes ``warm`` for PREPARE, and never warms up."""
    return Order.WARM if order.warm and order.phase is Phase.PREPARE else Order(order.phase)


def _stop_reason(text: str) -> StopReason:
    try:
        return StopReason(text)
    except ValueError:  # none, or a newer control plane's word
        return StopReason.SUPERSEDED
