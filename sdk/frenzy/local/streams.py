"""Create the streams on a NATS server: once per server, before the services start."""

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name


async def create_streams(access: Access) -> None:
    """Create the streams that do not exist.

    Raises:
        Misconfigured: the server is too old, or a stream exists with other settings.
        Unavailable: the server cannot be reached.
    """
    bus = await NatsBus.connect(access, name=connection_name(BusRole.ADMIN))
    try:
        await bus.ensure_streams()
        await bus.verify_streams()
    finally:
        await bus.close()
