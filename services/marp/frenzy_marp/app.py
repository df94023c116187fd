"""Composition root: connect to the real servers and run one replica."""

from contextlib import AsyncExitStack

from frenzy_marp.service import Marp
from frenzy_marp.settings import MarpSettings
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import bus_access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.catalog.gpus import use_own_gpus
from frenzy_shared.clock import SystemClock
from frenzy_shared.messages.catalogue import read_catalogue
from frenzy_shared.state.redis import RedisStore
from frenzy_shared.telemetry import configure, serve_metrics


async def run(settings: MarpSettings) -> None:
    """Run until a signal.

    Raises:
        Misconfigured: servers and streams are not as they must be.
        InvalidSpec: the catalogue of one's own is wrong.
        Unavailable: the servers cannot be reached.
    """
    if settings.catalog is not None:
        use_own_gpus(read_catalogue(settings.catalog).own_gpus)
    async with AsyncExitStack() as stack:
        telemetry = configure("marp", settings)
        stack.callback(telemetry.close)
        state = await RedisStore.open(settings.redis_url.get_secret_value())
        stack.push_async_callback(state.close)
        bus = await NatsBus.connect(bus_access(settings), name=connection_name(BusRole.MARP))
        stack.push_async_callback(bus.close)
        await bus.verify_streams()
        serve_metrics(telemetry, settings)
        marp = Marp(
            state=state, bus=bus, clock=SystemClock(), settings=settings, telemetry=telemetry
        )
        await marp.run()
