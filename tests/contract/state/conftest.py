"""The two stores that one behaviour suite runs against."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from tests.contract.state.ageing import age
from tests.support.state import FakeClock
from tests.support.valkey import ValkeyProcess, fresh_valkey, valkey, valkey_server

from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import StateStore
from frenzy_shared.state.redis import RedisStore

__all__ = ["fresh_valkey", "valkey", "valkey_server"]


@dataclass
class World:
    """A store and the power over its time."""

    store: StateStore
    advance: Callable[[float], None]


@pytest.fixture(params=["memory", "valkey"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        clock = FakeClock()
        yield World(MemoryStore(clock), clock.advance)
    else:
        server: ValkeyProcess = request.getfixturevalue("valkey")
        store = await RedisStore.open(server.service_url())
        yield World(store, lambda seconds: age(server, seconds))
        await store.close()


@pytest.fixture
def store(world: World) -> StateStore:
    return world.store


@pytest.fixture
async def redis_store(valkey: ValkeyProcess) -> AsyncIterator[RedisStore]:
    store = await RedisStore.open(valkey.url)
    yield store
    await store.close()
