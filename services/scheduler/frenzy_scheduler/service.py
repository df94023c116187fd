"""The scheduler: what every replica does, and what only the holder of the lease does."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from frenzy_scheduler.acting import Acting
from frenzy_scheduler.alternatives import Alternatives
from frenzy_scheduler.core.decisions import Strategy
from frenzy_scheduler.core.liveness import Watch
from frenzy_scheduler.core.strikes import StrikeRule
from frenzy_scheduler.dependents import Dependents
from frenzy_scheduler.desired import Desired
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.draining import Draining
from frenzy_scheduler.explain import Explain
from frenzy_scheduler.feed import EvidenceFeed
from frenzy_scheduler.forecasting import Forecasting
from frenzy_scheduler.incoming import Incoming
from frenzy_scheduler.jobs import Jobs
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_scheduler.nodes import Nodes
from frenzy_scheduler.paces import Paces
from frenzy_scheduler.pauses import Pauses
from frenzy_scheduler.recent import Recent
from frenzy_scheduler.recorder import Recorder
from frenzy_scheduler.recovery import Recovery
from frenzy_scheduler.retention import Archive, Retention
from frenzy_scheduler.safemode import SafeMode
from frenzy_scheduler.scheduling import Scheduling
from frenzy_scheduler.settings import SchedulerSettings
from frenzy_scheduler.sharing import Sharing
from frenzy_scheduler.silence import Silence
from frenzy_scheduler.situation import Look
from frenzy_scheduler.timers import Timers
from frenzy_shared.bus.port import Bus, Message, Subscription
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import PLACED
from frenzy_shared.domain.transitions import CANCEL_REASONS
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import Heartbeat
from frenzy_shared.outbox import OutboxRelay
from frenzy_shared.runtime import every, run_until_stopped
from frenzy_shared.state.keeper import Keeper
from frenzy_shared.state.port import OutboxEntry, StateStore
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

# Events after which a waiting job may be placeable. Training's progress is not among them.
_WAKING: Final = frozenset(
    {"planned", "requeued", "succeeded", "failed", "cancelled", "released", "up", "changed"}
)
_CYCLE_SHARE: Final = 0.5  # of the time: with a long queue, heartbeats and evidence need the rest
_REPORT_S: Final = 5.0
_ACCOUNT_S: Final = 30.0
_QUEUE: Final = "scheduler"
_DURABLES: Final = (
    (subjects.EVENTS_STREAM, subjects.WAKE_DURABLE),
    (subjects.EVIDENCE_STREAM, subjects.EVIDENCE_DURABLE),
)


@dataclass(kw_only=True)
class Scheduler:
    """One replica, made of its ports."""

    store: StateStore
    keeper: Keeper
    archive: Archive
    bus: Bus
    clock: Clock
    ids: IdSource
    settings: SchedulerSettings
    policy: Strategy
    telemetry: Telemetry
    instance: str
    leadership: Leadership = field(init=False)
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _cancelled: "asyncio.Queue[JobId]" = field(init=False, default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        """Wire the parts; nothing runs yet."""
        settings = self.settings
        self._metrics = Metrics(self.telemetry.registry)
        self._watch = Watch(
            suspect_after_s=settings.suspect_after_s,
            lost_after_s=settings.lost_after_s,
            frozen_after_s=max(5 * settings.liveness_poll_s, settings.suspect_after_s / 4),
            since=self.clock.monotonic(),
        )
        self._safe_mode = SafeMode(keeper=self.keeper, bus=self.bus)
        self.leadership = Leadership(
            store=self.store,
            clock=self.clock,
            holder=self.instance,
            ttl_s=settings.lease_ttl_s,
            on_gained=self._take_over,
            safe_mode=self._safe_mode,
        )
        documents = Documents(store=self.store, settings=settings)
        self._wire_jobs(documents)
        self._wire_nodes()
        self._wire_incoming()
        self._wire_recovery(documents)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Work until ``stop`` or a signal; then give the lease up."""
        settings = self.settings
        async with self._listening():
            try:
                await run_until_stopped(
                    lambda s: every(settings.lease_renew_s, s, self._lead),
                    lambda s: every(settings.lease_renew_s, s, self._feed.look),
                    lambda s: every(
                        settings.rescan_s, s, self._schedule, wake=self._wake, share=_CYCLE_SHARE
                    ),
                    lambda s: every(settings.rescan_s, s, self._sweep),
                    lambda s: every(settings.timer_poll_s, s, self._look_at_timers),
                    lambda s: every(settings.liveness_poll_s, s, self._look_at_nodes),
                    lambda s: every(_REPORT_S, s, self._report),
                    lambda s: every(_ACCOUNT_S, s, self._keep_account),
                    lambda s: every(settings.retention_poll_s, s, self._retain),
                    self._push_cancelled,
                    self._relay,
                    stop=stop,
                )
            finally:
                await self._resign()

    async def heartbeat(self, message: Message) -> bytes | None:
        """Answer a node if this replica leads; silence makes the node ask again."""
        if not self.leadership.held:
            return None
        try:
            heartbeat = Heartbeat.decode(message.payload)
            return (await self._nodes.answer(heartbeat)).encode()
        except ValidationError as error:
            log.warning("not a heartbeat on %s: %s", message.subject, error)
        except Unavailable as error:
            log.warning("heartbeat on %s not answered: %s", message.subject, error.message)
        return None

    # -- wiring -------------------------------------------------------------------------------

    def _wire_jobs(self, documents: Documents) -> None:
        self._desired = Desired(
            store=self.store,
            bus=self.bus,
            documents=documents,
            grace_s=self.settings.stop_grace_s,
            fence_after_s=self.settings.fence_after_s,
        )
        self._jobs = Jobs(
            store=self.store,
            clock=self.clock,
            documents=documents,
            desired=self._desired,
            metrics=self._metrics,
            on_change=self._wake.set,
        )
        self._sharing = Sharing(
            store=self.store, clock=self.clock, half_life_s=self.settings.fair_share_half_life_s
        )
        self._paces = Paces()
        self._look = Look(
            store=self.store,
            clock=self.clock,
            documents=documents,
            policy=self.policy,
            sharing=self._sharing,
            paces=self._paces,
            pauses=Pauses(clock=self.clock, longest_s=self.settings.longest_pause_s),
            restart_prior_s=self.settings.restart_prior_s,
            make_before_break=self.settings.make_before_break,
            move_backoff_s=self.settings.move_backoff_s,
            stop_grace_s=self.settings.stop_grace_s,
            batch=self.settings.batch,
        )
        acting = Acting(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            documents=documents,
            jobs=self._jobs,
            desired=self._desired,
            leadership=self.leadership,
            metrics=self._metrics,
            telemetry=self.telemetry,
            batch=self.settings.batch,
        )
        dependents = Dependents(
            store=self.store,
            clock=self.clock,
            leadership=self.leadership,
            metrics=self._metrics,
        )
        self._recorder = Recorder(
            folder=self.settings.record_cycles, keep=self.settings.record_keep
        )
        self._scheduling = Scheduling(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            policy=self.policy,
            look=self._look,
            acting=acting,
            dependents=dependents,
            leadership=self.leadership,
            metrics=self._metrics,
            telemetry=self.telemetry,
            recorder=self._recorder,
            batch=self.settings.batch,
        )

    def _wire_nodes(self) -> None:
        settings = self.settings
        self._nodes = Nodes(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            jobs=self._jobs,
            desired=self._desired,
            leadership=self.leadership,
            watch=self._watch,
            safe_mode=self._safe_mode,
            forgotten_after_s=settings.lost_after_s,
        )
        self._silence = Silence(
            store=self.store,
            bus=self.bus,
            clock=self.clock,
            ids=self.ids,
            jobs=self._jobs,
            leadership=self.leadership,
            metrics=self._metrics,
            watch=self._watch,
            fence_after_s=settings.fence_after_s + settings.fence_margin_s,
        )
        self._draining = Draining(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            jobs=self._jobs,
            leadership=self.leadership,
            rule=StrikeRule(limit=settings.strikes, window_s=settings.strikes_window_s),
        )
        self._timers = Timers(
            store=self.store,
            ids=self.ids,
            jobs=self._jobs,
            silence=self._silence,
            draining=self._draining,
            leadership=self.leadership,
        )

    def _wire_incoming(self) -> None:
        documents = self._look.documents
        forecasting = Forecasting(
            clock=self.clock,
            policy=self.policy,
            look=self._look,
            recent=Recent(store=self.store, clock=self.clock, documents=documents),
            start_prior_s=self.settings.restart_prior_s,
        )
        explain = Explain(
            store=self.store,
            policy=self.policy,
            documents=documents,
            forecasting=forecasting,
            alternatives=Alternatives(bus=self.bus),
        )
        self._incoming = Incoming(
            store=self.store,
            jobs=self._jobs,
            explain=explain,
            paces=self._paces,
            recorder=self._recorder,
            leadership=self.leadership,
            draining=self._draining,
            telemetry=self.telemetry,
        )
        self._outbox = OutboxRelay(store=self.store, bus=self.bus, on_published=self._published)

    def _wire_recovery(self, documents: Documents) -> None:
        settings = self.settings
        self._feed = EvidenceFeed(keeper=self.keeper, bus=self.bus, handler=self._incoming.evidence)
        self._recovery = Recovery(
            store=self.store,
            keeper=self.keeper,
            bus=self.bus,
            clock=self.clock,
            ids=self.ids,
            documents=documents,
            leadership=self.leadership,
            safe_mode=self._safe_mode,
            watch=self._watch,
            fence_after_s=settings.fence_after_s + settings.fence_margin_s,
            forgotten_after_s=settings.retention_s,
        )
        self._retention = Retention(
            store=self.store,
            keeper=self.keeper,
            clock=self.clock,
            archive=self.archive,
            keep_s=settings.retention_s,
            keep_jobs=settings.retention_jobs,
        )

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        incoming = self._incoming
        async with AsyncExitStack() as stack:

            def keep(subscription: Subscription) -> None:
                stack.push_async_callback(subscription.stop)

            keep(await self.bus.serve(subjects.HEARTBEATS, self.heartbeat))
            stack.push_async_callback(self._feed.stop)
            await self._feed.start()
            keep(
                await self.bus.consume(
                    subjects.EVENTS_STREAM,
                    subjects.WAKE_DURABLE,
                    self._event,
                    filter_subject=subjects.ALL_EVENTS,
                )
            )
            keep(await self.bus.subscribe(subjects.TELEMETRY, incoming.metrics, queue=_QUEUE))
            explain = subjects.SCHEDULER_EXPLAIN
            keep(await self.bus.serve(explain, incoming.question, queue=_QUEUE))
            keep(await self.bus.serve(subjects.SCHEDULER_QUEUE, incoming.queue, queue=_QUEUE))
            keep(await self.bus.serve(subjects.SCHEDULER_RECORD, incoming.record))
            keep(await self.bus.serve(subjects.SCHEDULER_RECONCILE, self._recovery.answer))
            yield

    # -- loops --------------------------------------------------------------------------------

    @property
    def _in_charge(self) -> bool:
        """Tell whether this replica leads and may build on what the store says."""
        return self.leadership.held and not self._safe_mode.why

    async def _lead(self) -> None:
        await self.leadership.renew()
        self._metrics.led(leader=self.leadership.held, safe_mode=bool(self._safe_mode.why))

    async def _schedule(self) -> None:
        if self._in_charge:
            await self._scheduling.run()

    async def _sweep(self) -> None:
        """Settle what a crash between two arrows left behind."""
        if not self._in_charge:
            return
        for record in await self.store.jobs_in(PLACED):
            op = f"sweep:{record.id}"
            await self._jobs.settle(record, op=op, lease=self.leadership.proof)

    async def _look_at_timers(self) -> None:
        if self._in_charge:
            await self._timers.look()

    async def _look_at_nodes(self) -> None:
        if self._in_charge:
            await self._silence.look()
        elif self.leadership.held:
            self._silence.listen()

    async def _report(self) -> None:
        if self.leadership.held:
            health = await self.store.health()
            self._metrics.counted(await self.store.counts(), health.outbox_lag)
            for stream, durable in _DURABLES:
                state = await self.bus.durable_state(stream, durable)
                if state is not None:
                    self._metrics.lagged(durable, state.pending + state.unacknowledged)

    async def _keep_account(self) -> None:
        if self._in_charge:
            await self._sharing.keep_account()

    async def _retain(self) -> None:
        if self._in_charge:
            await self._retention.look()

    async def _push_cancelled(self, stop: asyncio.Event) -> None:
        """Tell nodes at once about jobs that the gateway is stopping."""
        while not stop.is_set():
            getter = asyncio.ensure_future(self._cancelled.get())
            waiter = asyncio.ensure_future(stop.wait())
            await asyncio.wait({getter, waiter}, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            if not getter.done():
                getter.cancel()
                return
            try:
                record = await self.store.job(getter.result())
                if record is not None:
                    await self._desired.push(record)
            except Unavailable as error:
                log.info("nodes will hear by heartbeat: %s", error.message)

    async def _relay(self, stop: asyncio.Event) -> None:
        await self._outbox.run(stop, leading=lambda: self._in_charge)

    async def _resign(self) -> None:
        try:
            await self.leadership.resign()
        except Unavailable as error:
            log.info("the lease ends by itself: %s", error.message)

    # -- wake-ups -----------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Begin to lead: nothing that an earlier leader knew is assumed."""
        self._watch.restart(self.clock.monotonic())
        self._scheduling.forget()
        self._wake.set()

    def _published(self, entry: OutboxEntry) -> None:
        """Act on an event as soon as it is stored, without waiting for its delivery."""
        if entry.type in _WAKING:
            self._wake.set()
        elif entry.type == "stopping" and entry.record["reason"] in CANCEL_REASONS:
            self._cancelled.put_nowait(JobId(entry.entity.removeprefix("job:")))

    async def _event(self, message: Message) -> None:
        """Wake up on events that another replica published while it led."""
        if message.subject.split(".")[5] in _WAKING:
            self._wake.set()
