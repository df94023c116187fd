"""``frenzy init``."""

import asyncio
import os
import sys

from frenzy_shared.errors import Misconfigured


def init() -> None:
    """Create the streams on the NATS server that FRENZY_NATS_URL names.

    Needed once for a server that `frenzy up` does not run; it does no harm to do it again.
    """
    # The address holds a secret, so it is not an argument.
    url = os.environ.get("FRENZY_NATS_URL")
    if not url:
        raise Misconfigured(
            "FRENZY_NATS_URL is not set",
            suggestions=("FRENZY_NATS_URL=nats://<token>@<host>:4222 frenzy init",),
        )
    # These need frenzy[server].
    from frenzy.local.streams import create_streams  # noqa: PLC0415 - see above
    from frenzy_shared.bus.nats_connection import bus_access  # noqa: PLC0415 - see above
    from frenzy_shared.settings import ServiceSettings, load  # noqa: PLC0415 - see above

    asyncio.run(create_streams(bus_access(load(ServiceSettings))))
    sys.stderr.write("the streams are there\n")
