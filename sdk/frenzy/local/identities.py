"""Who may use the bus: each service, each node, and whoever creates the streams."""

from collections.abc import Iterable
from pathlib import Path

from frenzy_shared.bus.keys import load_or_make
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.bus.nats_users import Identity, UsersFile

_SERVICES = (BusRole.ADMIN, BusRole.GATEWAY, BusRole.MARP, BusRole.SCHEDULER)


def key_file(keys: Path, role: BusRole, name: str = "") -> Path:
    """Return where the seed of an identity lies, below the folder of seeds."""
    return keys / f"{connection_name(role, name)}.nk"


def admit(users: Path, keys: Path, nodes: Iterable[str]) -> None:
    """Make what keys are missing and let the server know all of them. Others stay as they are.

    Raises:
        Misconfigured: a file is damaged.
    """
    own = [(role, "") for role in _SERVICES] + [(BusRole.NODE, node) for node in nodes]
    UsersFile(users).put(
        *(
            Identity(role=role, name=name, public_key=load_or_make(key_file(keys, role, name)))
            for role, name in own
        )
    )
