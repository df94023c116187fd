"""Composition root: connect to the real servers and run one replica."""

from contextlib import AsyncExitStack

from frenzy_scheduler.adapters.archive import FolderArchive
from frenzy_scheduler.service import Scheduler
from frenzy_scheduler.settings import SchedulerSettings
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import bus_access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.clock import RandomIds, SystemClock
from frenzy_shared.state.redis import RedisStore
from frenzy_shared.telemetry import configure, serve_metrics


async def run(settings: SchedulerSettings) -> None:
    """Run until a signal.

    Raises:
        Misconfigured: servers and streams that are not as they must be.
        Unavailable: the servers cannot be reached.
    """
    ids = RandomIds()
    instance = settings.instance or f"scheduler-{ids.new_id()}"
    async with AsyncExitStack() as stack:
        telemetry = configure("scheduler", settings)
        stack.callback(telemetry.close)
        store = await RedisStore.open(settings.redis_url.get_secret_value())
        stack.push_async_callback(store.close)
        bus = await NatsBus.connect(
            bus_access(settings),
            name=connection_name(BusRole.SCHEDULER),
            ack_wait_s=settings.ack_wait_s,
        )
        stack.push_async_callback(bus.close)
        await bus.verify_streams()
        serve_metrics(telemetry, settings)
        scheduler = Scheduler(
            store=store,
            keeper=store,
            archive=FolderArchive(settings.archive),
            bus=bus,
            clock=SystemClock(),
            ids=ids,
            settings=settings,
            policy=settings.strategy(),
            telemetry=telemetry,
            instance=instance,
        )
        await scheduler.run()
