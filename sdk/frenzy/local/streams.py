"""Create the streams on a NATS server: once per server, before the services start."""

from frenzy_shared.bus.nats import NatsBus


async def create_streams(nats_url: str) -> None:
    """Create the streams that do not exist.

    Raises:
        Misconfigured: the server is too old, or a stream exists with other settings.
        Unavailable: the server cannot be reached.
    """
    bus = await NatsBus.connect(nats_url, name="init")
    try:
        await bus.ensure_streams()
        await bus.verify_streams()
    finally:
        await bus.close()
