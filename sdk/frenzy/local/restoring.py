"""Put a backup back where `frenzy up` keeps things. The store comes back in SAFE MODE.

It says what was true when it was copied: devices that it calls free may be in use, and jobs that it
has waiting may run. So nothing starts before an administrator has had it reconciled.
"""

import asyncio
import datetime as dt
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from frenzy.local import appendonly, backup, binaries, credentials, servers
from frenzy.local.doors import LOOPBACK
from frenzy.local.layout import Layout
from frenzy.local.ports import free_ports
from frenzy.local.status import Status, held, hold
from frenzy_shared.errors import FrenzyError, InvalidState, Unavailable
from frenzy_shared.files import write_private
from frenzy_shared.state.redis import RedisStore

Progress = Callable[[str], None]

_LOADED_S: Final = 300.0  # for the server to read a large store
_TRY_S: Final = 1.0
_STOP_S: Final = 30.0


def restore(layout: Layout, source: Path, progress: Progress) -> Path | None:
    """Replace the store by a backup's, and add what else is missing here.

    Identities and keys that are here stay: they are newer, and nodes hold on to them. Returns the
    folder to which the store that was here was moved; None when there was none.

    Raises:
        InvalidState: Frenzy runs here, or there is no finished backup.
        Misconfigured: the backup is damaged, or of another format.
        Unavailable: the store's server does not start with it; what was here is back.
    """
    about = backup.Backup.read(source)
    appendonly.check(source / appendonly.FOLDER, about.store)
    layout.create()
    with _nobody_else(layout):
        progress("identities and keys")
        backup.copy_private(source, layout.root)
        _merge_keys(source / layout.secrets_key.name, layout.secrets_key)
        progress("bundles and data")
        backup.copy_blobs(source / "blobs", layout.blobs)
        progress("the store")
        aside = _move_aside(layout.server("valkey"))
        try:
            folder = layout.server("valkey")
            folder.mkdir(exist_ok=True)
            appendonly.copy(source / appendonly.FOLDER, folder / appendonly.FOLDER)
            why = f"restored from a backup of {about.created}; put it right: frenzy admin reconcile"
            _enter_safe_mode(layout, why)
        except (FrenzyError, OSError):
            _move_back(layout.server("valkey"), aside)
            raise
    return aside


@contextmanager
def _nobody_else(layout: Layout) -> Iterator[None]:
    """Keep an `up` from beginning meanwhile.

    Raises:
        InvalidState: Frenzy runs here, or something of it is left.
    """
    with hold(layout.up_lock) as ours:
        status = Status.read(layout.status)
        left = status is not None and any(mark.alive for mark in status.marks)
        if not ours or held(layout.lock) or left:
            raise InvalidState(
                f"Frenzy runs in {layout.root}",
                suggestions=("stop it first: frenzy down",),
            )
        yield


def _merge_keys(source: Path, target: Path) -> None:
    """Add the keys that opened the backup's secrets behind those that are here."""
    if not source.exists():
        return
    here = target.read_text(encoding="ascii").split() if target.exists() else []
    there = source.read_text(encoding="ascii").split()
    if missing := [key for key in there if key not in here]:
        write_private(target, "".join(f"{key}\n" for key in (*here, *missing)))


def _move_aside(folder: Path) -> Path | None:
    if not (folder / appendonly.FOLDER).exists():
        return None
    aside = folder.with_name(f"{folder.name}.replaced-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}")
    folder.rename(aside)
    return aside


def _move_back(folder: Path, aside: Path | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if aside is not None:
        aside.rename(folder)


def _enter_safe_mode(layout: Layout, why: str) -> None:
    """Start a server of its own on the restored files: that also proves that they can be read."""
    secret = credentials.load_or_make(layout)
    (port,) = free_ports(1)
    command = servers.valkey_command(binaries.find(binaries.VALKEY), layout, port, secret)
    with layout.log("valkey").open("ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=layout.root)
    try:
        password = secret.store_password(credentials.STORE_ADMIN)
        url = f"redis://{credentials.STORE_ADMIN}:{password}@{LOOPBACK}:{port}/0"
        asyncio.run(_set_safe_mode(url, why, server, layout))
    finally:
        server.terminate()
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            raise Unavailable(
                "the store's server does not stop", suggestions=(f"see {layout.log('valkey')}",)
            ) from None


async def _set_safe_mode(
    url: str, why: str, server: "subprocess.Popen[bytes]", layout: Layout
) -> None:
    store = await _open(url, server, layout)
    try:
        await store.enter_safe_mode(why)
    finally:
        await store.close()


async def _open(url: str, server: "subprocess.Popen[bytes]", layout: Layout) -> RedisStore:
    """Wait until the server has read its files, or has given up."""
    deadline = time.monotonic() + _LOADED_S
    while True:
        try:
            return await RedisStore.open(url, wait_s=_TRY_S)
        except Unavailable:
            if server.poll() is None and time.monotonic() < deadline:
                continue
            raise Unavailable(
                "the store's server does not start with this backup",
                suggestions=(f"see {layout.log('valkey')}",),
            ) from None
