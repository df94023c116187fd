"""What a further `frenzy up` asks for, beside what runs or ran last: nothing is ignored."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from frenzy.local.layout import Layout
from frenzy.local.options import DEFAULT_BUS_PORT, DEFAULT_PORT, SERVICES, Options
from frenzy_shared.bus.nats_permissions import BusRole
from frenzy_shared.bus.nats_users import UsersFile
from frenzy_shared.errors import Misconfigured

_ANY_PORT: Final = (DEFAULT_PORT, 0)  # whoever asks for these takes any that there is


def require_same(asked: Options, runs: Options, url: str) -> None:
    """Refuse options that differ from what runs at ``url``; an option with its default is not one.

    Raises:
        Misconfigured: naming each of them, and what runs instead.
    """
    other = list(_differences(asked, runs, url))
    if other:
        raise Misconfigured(
            f"it already runs, with other options: {'; '.join(other)}",
            suggestions=("frenzy down, then this again: running jobs go on from a checkpoint",),
        )


def left_behind(layout: Layout, asked: Options, last: Options | None) -> tuple[str, ...]:
    """Return the nodes that have joined with a token and cannot reach an `up` without ``--listen``.

    Raises:
        Misconfigured: the file of those who may use the bus is damaged.
    """
    if asked.listen or last is None or not last.listen:
        return ()
    known = UsersFile(layout.bus_users).identities()
    return tuple(sorted(one.name for one in known if one.role is BusRole.NODE and one.token_id))


def _differences(asked: Options, runs: Options, url: str) -> Iterator[str]:
    port = urlsplit(url).port or runs.port  # what 0 has become
    if asked.port not in (*_ANY_PORT, port):
        yield f"--port {asked.port} (runs: {port})"
    if asked.listen and asked.listen != runs.listen:
        yield f"--listen {asked.listen} (runs: {runs.listen or 'loopback only'})"
    if asked.bus_port not in (DEFAULT_BUS_PORT, runs.bus_port):
        yield f"--bus-port {asked.bus_port} (runs: {runs.bus_port})"
    if asked.nodes and asked.nodes != runs.nodes:
        yield f"--emulated (runs: {', '.join(sorted(runs.nodes))} with other GPUs or names)"
    for name in SERVICES:
        if name in asked.replicas and asked.count(name) != runs.count(name):
            yield f"--replicas {name}={asked.count(name)} (runs: {runs.count(name)})"
    for name, value in asked.settings.items():
        now = runs.settings.get(name)
        if value != now:
            yield f"--set {name}={value} (runs: {'its default' if now is None else now})"
