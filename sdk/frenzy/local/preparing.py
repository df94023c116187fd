"""What servers need once, by an administrator, before the services start."""

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.state.redis import RedisStore


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


async def load_functions(redis_url: str) -> None:
    """Load Frenzy's functions into the store; the services' own accounts may not.

    Raises:
        Misconfigured: the server loses writes, has newer functions, or refuses the account.
        Unavailable: it cannot be reached.
    """
    store = await RedisStore.open(redis_url)
    await store.close()
