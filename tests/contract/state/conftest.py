"""The two stores that one behaviour suite runs against."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
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
        store = await RedisStore.open(server.url)
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


def age(server: ValkeyProcess, seconds: float) -> None:
    """Make everything on the server older: its clock is not ours to move."""
    with server.client() as client:
        for timer, due in client.zrange("{frenzy}:timer", 0, -1, withscores=True):
            client.zadd("{frenzy}:timer", {timer: due - seconds * 1000})
        for key in client.scan_iter("{frenzy}:*"):
            left_ms = client.pttl(key)
            if left_ms > 0:
                client.pexpire(key, max(0, left_ms - round(seconds * 1000)))
