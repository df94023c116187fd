"""``frenzy init``."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from frenzy_shared.domain.ids import is_name
from frenzy_shared.errors import Misconfigured


def init(
    *,
    identities: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="First make a key for each service, and the users that nats-server includes.",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="With --identities: a node too; repeatable."),
    ] = None,
) -> None:
    """Create the streams on the NATS server that FRENZY_NATS_URL names.

    Needed once for servers that `frenzy up` does not run; it does no harm to do it again. With
    FRENZY_REDIS_URL the store's functions are loaded too. With --identities and without
    FRENZY_NATS_URL only the keys are made.
    """
    if identities is not None:
        _make_identities(identities, node or [])
    # The address holds a secret, so it is not an argument.
    if os.environ.get("FRENZY_NATS_URL"):
        _prepare_servers()
    elif identities is None:
        raise Misconfigured(
            "FRENZY_NATS_URL is not set",
            suggestions=("FRENZY_NATS_URL=nats://<host>:4222 FRENZY_NATS_NKEY=<file> frenzy init",),
        )


def _make_identities(folder: Path, nodes: list[str]) -> None:
    from frenzy.local.identities import admit  # noqa: PLC0415 - needs frenzy[server]

    for name in nodes:
        if not is_name(name):
            raise Misconfigured(f"--node: {name!r} is not a node name (a-z, 0-9, '-')")
    users = folder / "nats-users.json"
    admit(users, folder / "keys", nodes)
    sys.stderr.write(
        f"keys: {folder / 'keys'} (FRENZY_NATS_NKEY of each service; keep them private)\n"
        f"nats-server includes: {users.with_suffix('.conf')}\n"
    )


def _prepare_servers() -> None:
    # These need frenzy[server].
    from frenzy.local.preparing import create_streams, load_functions  # noqa: PLC0415 - see above
    from frenzy_shared.bus.nats_connection import bus_access  # noqa: PLC0415 - see above
    from frenzy_shared.settings import ServiceSettings, load  # noqa: PLC0415 - see above

    settings = load(ServiceSettings)
    asyncio.run(create_streams(bus_access(settings)))
    sys.stderr.write("the streams are there\n")
    if os.environ.get("FRENZY_REDIS_URL"):
        asyncio.run(load_functions(settings.redis_url.get_secret_value()))
        sys.stderr.write("the store's functions are loaded\n")
