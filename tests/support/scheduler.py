"""One scheduler on memory doubles, and agents that follow a script instead of running anything."""

import asyncio
import contextlib
from collections.abc import Sequence

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from tests.support.scheduling import plan
from tests.support.state import FakeClock

from frenzy_scheduler.retention import Archive
from frenzy_scheduler.service import Scheduler
from frenzy_scheduler.settings import SchedulerSettings
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.clock import Clock, RandomIds
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.ids import DeviceId, JobId
from frenzy_shared.domain.job import JobRecord, JobState, RankOutcome, StopReason
from frenzy_shared.domain.plan import PlanSet, ResourcePlan
from frenzy_shared.domain.transitions import transition
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    DesiredAttempt,
    DesiredSet,
    Evidence,
    EvidenceKind,
    Heartbeat,
    HeldAttempt,
    Phase,
)
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import Change, Json, OutboxMessage, StateStore, Submission
from frenzy_shared.telemetry import Telemetry

SPEC = {
    "model": "gpt2",
    "data": "node:/data/text",
    "global_batch_size": 4,
    "retry": {"max_retries": 1, "max_oom_retries": 1},
}


def quiet_telemetry() -> Telemetry:
    provider = TracerProvider()
    return Telemetry(
        service="scheduler",
        tracer=provider.get_tracer("test"),
        registry=CollectorRegistry(),
        provider=provider,
    )


class ListArchive:
    """An archive in memory."""

    def __init__(self) -> None:
        self.jobs: list[Json] = []

    async def append(self, job: Json, finished_ms: int) -> None:
        self.jobs.append(job)


def make_scheduler(
    store: StateStore,
    bus: Bus,
    clock: Clock,
    *,
    instance: str = "s1",
    archive: Archive | None = None,
    **settings: object,
) -> Scheduler:
    # Unless a test is about another policy: one whose placements a hand can compute.
    options = SchedulerSettings(**{"policy": "has", **settings})
    return Scheduler(
        store=store,
        keeper=store,
        archive=archive if archive is not None else ListArchive(),
        bus=bus,
        clock=clock,
        ids=RandomIds(),
        settings=options,
        policy=options.strategy(),
        telemetry=quiet_telemetry(),
        instance=instance,
    )


async def submit_job(store: StateStore, job: str, **spec: object) -> None:
    """What the gateway does."""
    record = JobRecord(
        id=JobId(job), project="default", name=job, state=JobState.SUBMITTED, version=1
    )
    accepted = await store.submit(
        f"submit:{job}",
        Submission(
            job=record,
            spec={**SPEC, **spec},
            idempotency_key=job,
            body_sha256=job,
            outbox=(_event("submitted", job, spec={**SPEC, **spec}),),
        ),
    )
    assert accepted.ok


async def plan_job(store: StateStore, job: str, *plans: ResourcePlan) -> None:
    """What MARP does."""
    record = await store.job(JobId(job))
    arrow = transition(record.state, JobState.QUEUED)
    document = PlanSet(plans=plans or (plan("p1", "rtx", 1),), refused=(), kinds_digest="k")
    change = Change(
        entity=f"job:{job}",
        expect_version=record.version,
        patch={"state": "QUEUED", "message": ""},
        documents={"plans": to_json(document)},
        outbox=(_event(arrow.event, job),),
    )
    assert (await store.apply(f"plan:{job}:{record.version}", change)).ok


async def cancel_job(store: StateStore, job: str) -> JobState:
    """What the gateway does; return the state that the cancel reached."""
    while True:
        record = await store.job(JobId(job))
        waiting = record.state in {JobState.SUBMITTED, JobState.QUEUED}
        target = JobState.CANCELLED if waiting else JobState.STOPPING
        arrow = transition(record.state, target)
        patch = {"state": target, "reason": "ByUser", "message": "cancelled by alice"}
        change = Change(
            entity=f"job:{job}",
            expect_version=record.version,
            patch=patch,
            outbox=(_event(arrow.event, job),),
        )
        if (await store.apply(f"cancel:{job}:{record.version}", change)).ok:
            return target


class ScriptedAgent:
    """A node agent without processes: it registers, and says what a test tells it to say."""

    def __init__(self, bus: Bus, node: str, devices: int = 1, *, kind: str = "rtx") -> None:
        self.bus = bus
        self.node = node
        self.epoch = 0
        self.boot_id = "boot-1"
        self.devices = tuple(
            Device(id=DeviceId(f"{kind}-{n}"), kind=kind, memory_bytes=24 * 2**30, emulated=True)
            for n in range(devices)
        )
        self.labels: tuple[tuple[str, str], ...] = ()
        self.held: dict[tuple[str, int], AttemptPhase] = {}
        self.warm: set[tuple[str, int]] = set()  # of those that are prepared
        self.sequence = 0
        self.sent: list[Evidence] = []

    async def beat(self, *, timeout_s: float = 5.0) -> DesiredSet:
        """Send one heartbeat; a registration's answer sets the epoch."""
        held = tuple(
            HeldAttempt(job=job, attempt=attempt, phase=phase)
            for (job, attempt), phase in sorted(self.held.items())
        )
        heartbeat = Heartbeat(
            node=self.node,
            epoch=self.epoch,
            boot_id=self.boot_id,
            address="127.0.1.1",
            devices=self.devices,
            attempts=held,
            labels=self.labels,
        )
        reply = await self.bus.request(
            subjects.heartbeat(self.node), heartbeat.encode(), timeout_s=timeout_s
        )
        desired = DesiredSet.decode(reply)
        if self.epoch == 0 and not desired.fenced:
            self.epoch = desired.epoch
        return desired

    async def join(self) -> None:
        """Register, and be UP after the first reconciled heartbeat."""
        self.epoch = 0
        await self.beat()
        await self.beat()

    async def say(
        self, kind: EvidenceKind, job: str, attempt: int = 1, **fields: object
    ) -> Evidence:
        """Publish evidence from the node's journal."""
        self.sequence += 1
        evidence = Evidence(
            kind=kind,
            node=self.node,
            epoch=max(self.epoch, 1),
            sequence=self.sequence,
            time_ms=1,
            job=job,
            project="default",
            attempt=attempt,
            **fields,
        )
        self.sent.append(evidence)
        await self._publish(evidence, f"{self.node}:{self.sequence}")
        return evidence

    async def repeat(self, evidence: Evidence) -> None:
        """Publish old evidence once more, as after a lost acknowledgement and a long time."""
        self.sequence += 1
        await self._publish(evidence, f"{self.node}:again:{self.sequence}")

    async def obey(self, desired: DesiredSet, *, exit_reason: StopReason | None = None) -> None:
        """Do what a desired set says, one phase a call; with ``exit_reason`` ranks end at once."""
        for attempt in desired.attempts:
            await self._obey(attempt, exit_reason)

    async def _obey(self, attempt: DesiredAttempt, exit_reason: StopReason | None) -> None:
        key = (attempt.job, attempt.attempt)
        phase = self.held.get(key)
        if attempt.phase is Phase.PREPARE and phase is None:
            self.held[key] = AttemptPhase.PREPARED
            address = "127.0.1.1:29500" if attempt.hosts_rank_zero else ""
            await self.say(EvidenceKind.PREPARED, *key, rendezvous=address)
        elif attempt.warm and phase is AttemptPhase.PREPARED and key not in self.warm:
            self.warm.add(key)
            await self.say(EvidenceKind.WARM, *key)
        elif attempt.phase is Phase.GO and phase is AttemptPhase.PREPARED:
            self.held[key] = AttemptPhase.STARTED
            await self.say(EvidenceKind.STARTED, *key)
            if exit_reason is not None:
                ranks = [assignment.rank for assignment in attempt.ranks]
                await self.exit(*key, ranks, exit_reason)
        elif attempt.phase is Phase.STOP and phase is not AttemptPhase.CLEAN:
            self.held[key] = AttemptPhase.CLEAN
            await self.say(EvidenceKind.CLEAN, *key)

    async def exit(self, job: str, attempt: int, ranks: Sequence[int], reason: StopReason) -> None:
        """Say how this node's ranks ended."""
        self.held[job, attempt] = AttemptPhase.EXITED
        code = 0 if reason is StopReason.COMPLETED else 1
        outcomes = tuple(
            RankOutcome(rank=rank, exit_code=code, reason=reason, last_step=10, loss_last=1.5)
            for rank in ranks
        )
        await self.say(EvidenceKind.EXITED, job, attempt, outcomes=outcomes)

    async def _publish(self, evidence: Evidence, message_id: str) -> None:
        await self.bus.publish(
            subjects.evidence(self.node, evidence.kind), evidence.encode(), message_id=message_id
        )


class LiveAgent(ScriptedAgent):
    """Beats, and obeys what heartbeats and pushes say, as far as ``limit`` allows.

    ``limit`` is the phase at which it stops obeying: "prepare", "go", "stop" or "" for never.
    """

    exit_reason: StopReason | None = None
    limit = ""
    over = False  # a flag: a client library may lose a cancellation on Python 3.11

    async def live(self) -> None:
        await self.bus.subscribe(subjects.desired(self.node), self._pushed)
        while not self.over:
            with contextlib.suppress(Unavailable):
                desired = await self.beat(timeout_s=1.0)
                if desired.fenced:
                    self.epoch = 0
                else:
                    await self._follow(desired)
            await asyncio.sleep(0.1)

    async def _pushed(self, message) -> None:
        await self._follow(DesiredSet.decode(message.payload))

    async def _follow(self, desired: DesiredSet) -> None:
        attempts = tuple(a for a in desired.attempts if a.phase != self.limit)
        allowed = desired.model_copy(update={"attempts": attempts})
        await self.obey(allowed, exit_reason=self.exit_reason)


class Bench:
    """A scheduler whose loops turn only when a test says so, on a clock that a test moves."""

    def __init__(self, **settings: object) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.bus = MemoryBus()
        self.scheduler = make_scheduler(self.store, self.bus, self.clock, **settings)
        self.agents: dict[str, ScriptedAgent] = {}

    async def __aenter__(self) -> "Bench":
        await self.bus.ensure_streams()
        self._listening = self.scheduler._listening()
        await self._listening.__aenter__()
        await self.scheduler._lead()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._listening.__aexit__(*error)
        await self.bus.close()

    async def node(self, name: str, devices: int = 1, *, kind: str = "rtx") -> ScriptedAgent:
        agent = self.agents[name] = ScriptedAgent(self.bus, name, devices, kind=kind)
        await agent.join()
        return agent

    async def queue(self, job: str, *plans: ResourcePlan, **spec: object) -> None:
        await submit_job(self.store, job, **spec)
        await plan_job(self.store, job, *plans)

    async def turn(self) -> None:
        """Let every loop of the leader do its work once, and all messages arrive."""
        scheduler = self.scheduler
        await self.quiet()
        for action in (
            scheduler._lead,
            scheduler._feed.look,
            scheduler._outbox.step,
            scheduler._look_at_timers,
            scheduler._look_at_nodes,
            scheduler._schedule,
            scheduler._sweep,
            scheduler._report,
        ):
            await action()
        await self.quiet()

    async def pass_time(self, seconds: float, *, beating: Sequence[str] = (), step_s: float = 1.0):
        """Move the clock in small steps; ``beating`` nodes keep their heartbeats."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(min(step_s, end - self.clock.monotonic()))
            await self.scheduler._lead()
            for name in beating:
                await self.agents[name].beat()
            await self.turn()

    async def quiet(self) -> None:
        """Wait until no message is on its way."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def job(self, job: str) -> JobRecord:
        return await self.store.job(JobId(job))

    async def state(self, job: str) -> str:
        return (await self.job(job)).state.value

    async def obey_all(self, **how: object) -> None:
        """One heartbeat of every node, and what it asks for."""
        for agent in self.agents.values():
            await agent.obey(await agent.beat(), **how)
        await self.quiet()

    async def free_devices(self) -> int:
        return sum(owner == "" for owner in (await self.store.cluster()).owners.values())

    async def events(self, job: str) -> list[str]:
        """Return the short types of the job's outbox messages, in order."""
        entries = self.store._tables.outbox
        return [entry.type for entry in entries if entry.entity == f"job:{job}"]


def message(evidence: Evidence, sequence: int) -> Message:
    """Return evidence as the bus would hand it to a replica."""
    return Message(
        subject=subjects.evidence(evidence.node, evidence.kind),
        payload=evidence.encode(),
        stream=subjects.EVIDENCE_STREAM,
        sequence=sequence,
    )


def _event(kind: str, job: str, **data: object) -> OutboxMessage:
    return OutboxMessage(subject=subjects.job_event("default", kind, job), type=kind, data=data)
