"""A scheduler with its loops running on real servers, and agents that act by themselves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from tests.support.nats import fresh_nats_server, nats_server, nats_url
from tests.support.scheduler import LiveAgent, make_scheduler
from tests.support.valkey import ValkeyProcess, fresh_valkey, valkey, valkey_server

from frenzy_scheduler.service import Scheduler
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.clock import SystemClock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.state.redis import RedisStore

__all__ = [
    "fresh_nats_server",
    "fresh_valkey",
    "nats_server",
    "nats_url",
    "valkey",
    "valkey_server",
]

QUICK = {"rescan_s": 0.5, "timer_poll_s": 0.05, "backoff_base_s": 0.3, "lease_renew_s": 0.2}


class Site:
    """Real servers, one scheduler in this process, and agents."""

    def __init__(self, store: RedisStore, bus: NatsBus, stack: AsyncExitStack) -> None:
        self.store = store
        self.bus = bus
        self._stack = stack
        self._agents: list[tuple[LiveAgent, asyncio.Task[None]]] = []

    async def scheduler(self, instance: str = "s1", **settings: object) -> Scheduler:
        options = {**QUICK, **settings}
        made = make_scheduler(self.store, self.bus, SystemClock(), instance=instance, **options)
        stop = asyncio.Event()
        task = asyncio.create_task(made.run(stop))

        async def end() -> None:
            stop.set()
            await task

        self._stack.push_async_callback(end)
        return made

    async def agent(self, name: str, devices: int = 1, **attributes: object) -> LiveAgent:
        made = LiveAgent(self.bus, name, devices)
        for key, value in attributes.items():
            setattr(made, key, value)
        task = asyncio.create_task(made.live())
        self._agents.append((made, task))
        await self.until(lambda: self._up(name), f"{name} is UP")
        return made

    async def end_agents(self) -> None:
        for agent, _ in self._agents:
            agent.over = True
        await asyncio.gather(*(task for _, task in self._agents))

    async def until(
        self, condition: Callable[[], Awaitable[object]], what: str, timeout_s: float = 15.0
    ) -> object:
        """Wait for something that the services do by themselves."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not (found := await condition()):
            assert asyncio.get_running_loop().time() < deadline, f"not in {timeout_s} s: {what}"
            await asyncio.sleep(0.01)
        return found

    async def reaches(self, job: str, *states: str, timeout_s: float = 15.0) -> JobRecord:
        async def there() -> JobRecord | None:
            record = await self.store.job(JobId(job))
            return record if record and record.state in states else None

        try:
            return await self.until(there, f"{job} in {states}", timeout_s)
        except AssertionError:
            raise AssertionError(f"{await self.store.job(JobId(job))}") from None

    async def owners(self) -> dict[str, str]:
        return (await self.store.cluster()).owners

    async def _up(self, name: str) -> bool:
        record = await self.store.node(name)
        return record is not None and record.state == "UP"


@pytest.fixture
async def site(nats_url: str, valkey: ValkeyProcess) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        store = await RedisStore.open(valkey.url)
        stack.push_async_callback(store.close)
        bus = await NatsBus.connect(nats_url, name="test")
        stack.push_async_callback(bus.close)
        await bus.ensure_streams()
        made = Site(store, bus, stack)
        stack.push_async_callback(made.end_agents)
        yield made
