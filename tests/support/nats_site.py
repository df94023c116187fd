"""A nats-server that knows one identity of each kind, with the rules that `frenzy up` gives it."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client
from tests.support.nats import NatsServer

from frenzy_shared.bus.keys import load_or_make
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name, inbox_prefix
from frenzy_shared.bus.nats_users import Identity, UsersFile

IDENTITIES = (
    (BusRole.ADMIN, "", ""),
    (BusRole.GATEWAY, "", ""),
    (BusRole.MARP, "", ""),
    (BusRole.SCHEDULER, "", ""),
    (BusRole.NODE, "n1", ""),
    (BusRole.NODE, "n2", ""),
    (BusRole.INTEGRATION, "portal", "alpha"),
    (BusRole.INTEGRATION, "watch", ""),  # of all projects
)


class Site:
    """A server that knows one identity of each kind."""

    def __init__(
        self, folder: Path, identities: Sequence[tuple[BusRole, str, str]] = IDENTITIES
    ) -> None:
        self.users_path = folder / "nats-users.json"
        self.users = UsersFile(self.users_path)
        self.keys = folder / "keys"
        for role, name, project in identities:
            self.admit(role, name, project)
        self.server = NatsServer(folder, authorization='include "nats-users.conf"')

    def admit(self, role: BusRole, name: str = "", project: str = "") -> None:
        key = load_or_make(self.key(role, name))
        self.users.put(Identity(role=role, name=name, project=project, public_key=key))

    def key(self, role: BusRole, name: str = "") -> Path:
        return self.keys / f"{connection_name(role, name)}.nk"

    def access(self, role: BusRole, name: str = "") -> Access:
        return Access(url=f"nats://127.0.0.1:{self.server.port}", nkey=self.key(role, name))

    def reload(self) -> None:
        os.kill(self.server.pid, signal.SIGHUP)

    def client(
        self, role: BusRole, name: str = ""
    ) -> AbstractAsyncContextManager[tuple[Client, list[str]]]:
        """A bare client, as an attacker with this identity's seed would use, and what it is told."""
        return self.client_with(self.key(role, name), connection_name(role, name))

    @asynccontextmanager
    async def client_with(
        self, key: Path, connection: str
    ) -> AsyncIterator[tuple[Client, list[str]]]:
        """The same for a seed in a file; once the server knows it."""
        told: list[str] = []

        async def tell(error: Exception) -> None:
            told.append(str(error).lower())

        client = await nats.connect(
            f"nats://127.0.0.1:{self.server.port}",
            nkeys_seed=str(key),
            inbox_prefix=inbox_prefix(connection),
            error_cb=tell,
        )
        yield client, told
        await client.close()
