"""Two kinds of world for the relay: everything in memory, and real servers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from tests.support.nats import fresh_nats_server, nats_server
from tests.support.valkey import fresh_valkey, valkey, valkey_server

from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.memory_broker import MemoryBroker
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.messages.subjects import ALL_EVENTS, EVENTS_STREAM
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import StateStore
from frenzy_shared.state.redis import RedisStore

__all__ = ["fresh_nats_server", "fresh_valkey", "nats_server", "valkey", "valkey_server"]


@dataclass
class World:
    """A store and a bus, and second clients to the same servers."""

    store: StateStore
    bus: Bus
    other_store: Callable[[], Awaitable[StateStore]]

    async def events(self) -> list[Message]:
        """Read every stored event."""
        found: list[Message] = []
        stored = self.bus.read(EVENTS_STREAM, ALL_EVENTS, after_sequence=0)
        last = await self.bus.last_sequence(EVENTS_STREAM)
        while len(found) < last:
            message = await anext(stored)
            if message is not None:
                found.append(message)
        await stored.aclose()
        return found


@pytest.fixture(params=["memory", "servers"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            store = MemoryStore()

            async def same() -> StateStore:
                return store

            bus = MemoryBus(MemoryBroker())
            stack.push_async_callback(bus.close)
            yield World(store, bus, same)
        else:
            url = request.getfixturevalue("valkey").url
            server = request.getfixturevalue("nats_server")
            await server.delete_streams()

            async def another() -> StateStore:
                opened = await RedisStore.open(url)
                stack.push_async_callback(opened.close)
                return opened

            nats = await NatsBus.connect(server.url, name="test")
            stack.push_async_callback(nats.close)
            await nats.ensure_streams()
            yield World(await another(), nats, another)
