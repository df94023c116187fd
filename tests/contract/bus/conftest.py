"""One suite, two buses: ``connect`` opens replicas on the same (in-memory or real) server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from tests.support.nats import NatsServer, fresh_nats_server, nats_server, nats_url

from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.memory_broker import MemoryBroker
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.port import Bus

__all__ = ["fresh_nats_server", "nats_server", "nats_url"]

Connect = Callable[[], Awaitable[Bus]]


@pytest.fixture(params=["memory", "nats"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Open buses on one empty server."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            broker = MemoryBroker(streams=())

            async def open_bus() -> Bus:
                bus = MemoryBus(broker)
                stack.push_async_callback(bus.close)
                return bus
        else:
            server: NatsServer = request.getfixturevalue("nats_server")
            await server.delete_streams()

            async def open_bus() -> Bus:
                bus = await NatsBus.connect(server.url, name="test")
                stack.push_async_callback(bus.close)
                return bus

        yield open_bus


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    """A bus whose streams exist."""
    opened = await connect()
    await opened.ensure_streams()
    return opened
