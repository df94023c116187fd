"""Who of this machine may use the bus: each service, each local node, and `frenzy up` itself."""

from collections.abc import Iterable
from pathlib import Path

from frenzy.local.layout import Layout
from frenzy_shared.bus.keys import load_or_make
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.bus.nats_users import Identity, UsersFile

_SERVICES = (BusRole.ADMIN, BusRole.GATEWAY, BusRole.MARP, BusRole.SCHEDULER)


def key_file(layout: Layout, role: BusRole, name: str = "") -> Path:
    """Return where the seed of an identity of this machine lies."""
    return layout.keys / f"{connection_name(role, name)}.nk"


def admit(layout: Layout, nodes: Iterable[str]) -> None:
    """Make what keys are missing and let the server know all of them. Others stay as they are.

    Raises:
        Misconfigured: a file is damaged.
    """
    own = [(role, "") for role in _SERVICES] + [(BusRole.NODE, node) for node in nodes]
    UsersFile(layout.bus_users).put(
        *(
            Identity(role=role, name=name, public_key=load_or_make(key_file(layout, role, name)))
            for role, name in own
        )
    )
