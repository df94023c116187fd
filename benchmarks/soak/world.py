"""Days of a cluster's life in minutes: real servers, real services, and a clock that jumps.

Valkey with Frenzy's own functions and nats-server are processes; the scheduler with its relay, and
MARP, live in this process and turn when told to. Nodes are scripts without ranks. Only time is not
real: the services' clock is moved by hand, and the store's functions read the same one.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.nats import NatsServer
from tests.support.scheduler import (
    ScriptedAgent,
    cancel_job,
    make_scheduler,
    quiet_telemetry,
    submit_job,
)
from tests.support.state import FakeClock
from tests.support.valkey import ValkeyProcess

from frenzy_marp.service import Marp
from frenzy_marp.settings import MarpSettings
from frenzy_scheduler import documents
from frenzy_scheduler.service import Scheduler
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.job import TERMINAL, StopReason
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import DesiredSet
from frenzy_shared.state import server
from frenzy_shared.state.redis import RedisStore

NODES: Final = 16
DEVICES: Final = 8
_CLOCK: Final = "{frenzy}:soak_clock"
_TURN_S: Final = 5.0  # of the moved clock, between two turns of all loops
_IDLE_TURN_S: Final = 240.0
_BEATING: Final = 4  # a quarter of the nodes beats in each turn; pushes tell all of them at once
_ENDINGS: Final = (
    (StopReason.COMPLETED, 0.90),
    (StopReason.USER_CODE_ERROR, 0.05),  # tried again, then failed
    (StopReason.CUDA_OUT_OF_MEMORY, 0.05),  # planned again
)
_CANCELLED: Final = 0.03
_DELIVERY_S: Final = 0.02  # for what the bus delivers by itself
_SETTLED_S: Final = 1800.0  # of this machine's time, for one wave to end


class CountingArchive:
    """An archive that only counts: what it holds is not what is measured."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.count = 0

    async def append(self, job: object, finished_ms: int) -> None:  # noqa: ARG002 - counts only
        """Take a job."""
        self.count += 1


class SoakAgent(ScriptedAgent):
    """Obeys what it is told at once; its ranks end as chance has it."""

    def __init__(self, bus: NatsBus, node: str, chance: random.Random) -> None:
        """Make a node of one kind."""
        super().__init__(bus, node, DEVICES, kind="emulated-a100-40")
        self._chance = chance

    async def listen(self) -> None:
        """Obey pushes from now on."""
        await self.bus.subscribe(subjects.desired(self.node), self._pushed)

    async def turn(self) -> None:
        """Beat, and do what the answer says; a fenced node registers with its next turn."""
        desired = await self.beat()
        if desired.fenced:
            self.epoch = 0
        await self.follow(desired)

    async def follow(self, desired: DesiredSet) -> None:
        """Do what a set says, and forget what is over and was left out of a complete one."""
        (reason,) = self._chance.choices(*zip(*_ENDINGS, strict=True))
        await self.obey(desired, exit_reason=reason)
        if desired.complete:
            listed = {(one.job, one.attempt) for one in desired.attempts}
            clean = [key for key, phase in self.held.items() if phase == "clean"]
            for key in clean:
                if key not in listed:
                    del self.held[key]
        self.sent.clear()

    async def _pushed(self, message: object) -> None:
        await self.follow(DesiredSet.decode(message.payload))  # type: ignore[attr-defined]


@dataclass(kw_only=True)
class World:
    """Everything that lives, and what turns it."""

    clock: FakeClock
    valkey: ValkeyProcess
    nats: NatsServer
    store: RedisStore
    scheduler: Scheduler
    marp: Marp
    archive: CountingArchive
    agents: list[SoakAgent]
    chance: random.Random
    jobs: int = 0
    turns: int = 0

    async def wave(self, jobs: int, seconds: float) -> None:
        """Live for so long; so many jobs are submitted at its beginning and all end within it."""
        names = [f"soak-{self.jobs + number}" for number in range(jobs)]
        self.jobs += jobs
        for name in names:
            await submit_job(self.store, name)
            if self.chance.random() < _CANCELLED:
                await cancel_job(self.store, name)
        end = self.clock.monotonic() + seconds
        async with asyncio.timeout(_SETTLED_S):
            while await self._unfinished():
                await self._turn(_TURN_S)
        while (left := end - self.clock.monotonic()) > 0:
            await self._turn(min(_IDLE_TURN_S, left), delivery_s=0.0)
        await self.marp.refresh()
        await self.scheduler._keep_account()  # noqa: SLF001 - loops turn by hand
        await self.scheduler._retain()  # noqa: SLF001
        await self.scheduler._report()  # noqa: SLF001

    def expire(self, seconds: float) -> None:
        """Bring the end of what the server itself forgets closer: its own clock does not jump."""
        with self.valkey.client() as client:
            for pattern in ("{frenzy}:op:*", "{frenzy}:idem:*"):
                keys = list(client.scan_iter(pattern, count=5000))
                for start in range(0, len(keys), 5000):
                    part = keys[start : start + 5000]
                    batch = client.pipeline(transaction=False)
                    for key in part:
                        batch.pttl(key)
                    for key, left_ms in zip(part, batch.execute(), strict=True):
                        batch.pexpire(key, max(1, left_ms - round(seconds * 1000)))
                    batch.execute()

    async def _turn(self, seconds: float, *, delivery_s: float = _DELIVERY_S) -> None:
        """Move the clock, let every loop of the leader work once, and every node beat."""
        self.clock.advance(seconds)
        tell_time(self.valkey, self.clock)
        self.turns += 1
        scheduler = self.scheduler
        for action in (
            scheduler._lead,  # noqa: SLF001 - loops turn by hand
            scheduler._feed.look,  # noqa: SLF001
            self._publish_all,
            self.marp.catch_up,
            scheduler._look_at_timers,  # noqa: SLF001
            scheduler._look_at_nodes,  # noqa: SLF001
            scheduler._schedule,  # noqa: SLF001
            scheduler._sweep,  # noqa: SLF001
        ):
            with suppress(Unavailable):  # a slow machine; every loop tries again by itself
                await action()
        for agent in self.agents[self.turns % _BEATING :: _BEATING]:
            with suppress(Unavailable):
                await agent.turn()
        await asyncio.sleep(delivery_s)

    async def _publish_all(self) -> None:
        while await self.scheduler._outbox.step():  # noqa: SLF001
            pass

    async def _unfinished(self) -> int:
        counts = await self.store.counts()
        return sum(count for state, count in counts.items() if state not in TERMINAL)


@asynccontextmanager
async def world(folder: Path, seed: int, *, kept_jobs: int) -> Iterator[World]:
    """Start servers, services and nodes, and end them all.

    The scheduler remembers documents of as many jobs as the store keeps, not of its usual 4,096:
    so a run of few jobs reaches its bounds too.
    """
    documents._KEPT = kept_jobs  # noqa: SLF001 - a bound, made smaller
    clock, chance = FakeClock(), random.Random(seed)
    async with AsyncExitStack() as stack:
        (folder / "valkey").mkdir(parents=True)
        valkey = ValkeyProcess(folder / "valkey").start()
        stack.callback(valkey.stop)
        nats = NatsServer(folder / "nats")
        nats.start()
        stack.callback(nats.stop)
        tell_time(valkey, clock)
        with _functions_on(_CLOCK):
            store = await RedisStore.open(valkey.url)
        stack.push_async_callback(store.close)
        bus = await NatsBus.connect(nats.url, name="soak")
        stack.push_async_callback(bus.close)
        await bus.ensure_streams()
        archive = CountingArchive()
        scheduler = make_scheduler(
            store,
            bus,
            clock,
            archive=archive,
            retention_jobs=kept_jobs,
            lease_ttl_s=7200.0,
            suspect_after_s=1800.0,
            lost_after_s=3600.0,
            backoff_base_s=5.0,
        )
        await stack.enter_async_context(scheduler._listening())  # noqa: SLF001
        await scheduler._lead()  # noqa: SLF001
        marp = await _marp(store, bus, clock, stack)
        agents = [SoakAgent(bus, f"node-{number}", chance) for number in range(NODES)]
        for agent in agents:
            await agent.join()
            await agent.listen()
        yield World(
            clock=clock,
            valkey=valkey,
            nats=nats,
            store=store,
            scheduler=scheduler,
            marp=marp,
            archive=archive,
            agents=agents,
            chance=chance,
        )


def tell_time(valkey: ValkeyProcess, clock: FakeClock) -> None:
    """Let the store's functions read what the services' clock says."""
    with valkey.client() as client:
        client.set(_CLOCK, clock.now_ms())


async def _marp(store: RedisStore, bus: NatsBus, clock: FakeClock, stack: AsyncExitStack) -> Marp:
    marp = Marp(
        state=store, bus=bus, clock=clock, settings=MarpSettings(), telemetry=quiet_telemetry()
    )
    events = await bus.consume(
        subjects.EVENTS_STREAM,
        subjects.MARP_DURABLE,
        marp.on_event,
        filter_subject=subjects.JOB_EVENTS,
    )
    stack.push_async_callback(events.stop)
    return marp


@contextmanager
def _functions_on(key: str) -> Iterator[None]:
    """Have the store load Frenzy's functions with another clock; nothing else of them changes."""
    original = server.functions_code
    clock = f"""local at = call('GET', '{key}')
  local time = {{math.floor(at / 1000), at % 1000 * 1000}}"""
    moved = original().replace("local time = call('TIME')", clock)
    moved = moved.replace(
        "call('XADD', P .. 'outbox', '*'", "call('XADD', P .. 'outbox', int(now) .. '-*'"
    )
    assert moved.count(key) == 1, "the functions read the time in another way now"
    assert "int(now) .. '-*'" in moved, "the functions number the outbox in another way now"
    server.functions_code = lambda: moved
    try:
        yield
    finally:
        server.functions_code = original
