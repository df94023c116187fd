"""Look at this machine: what Frenzy needs, what is missing, what to do about it."""

import datetime as dt
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from frenzy import config
from frenzy.client import Client
from frenzy.exchange import Retry
from frenzy.local import binaries, control, servers
from frenzy.local.layout import Layout, default_layout
from frenzy.local.options import DEFAULT_PORT, has_nvidia_gpus
from frenzy.local.ports import require_free
from frenzy_shared.errors import FrenzyError
from frenzy_shared.installing import install
from frenzy_shared.messages.http import SAFE_MODE, CheckView
from frenzy_shared.units import GIB, format_bytes

_LOW_DISK_BYTES: Final = 5 * GIB


class Verdict(StrEnum):
    """How a check went. ``warn``: Frenzy works, with a limit."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; ``remedy`` is empty when there is nothing to do."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def checks() -> Iterator[Check]:
    """Yield findings one by one; some take a moment."""
    layout = default_layout()
    yield _python()
    yield from _packages()
    looks: tuple[tuple[str, Callable[[], Check]], ...] = (
        (binaries.NATS.title, lambda: _program(binaries.NATS)),
        (binaries.VALKEY.title, lambda: _program(binaries.VALKEY)),
        ("server configurations", _configurations),
        ("gpus", _gpus),
        ("data folder", lambda: _disk(layout)),
        ("shared memory", _shared_memory),
        ("port", lambda: _port(layout)),
        ("credentials", _credentials),
        ("certificates", lambda: _certificates(layout)),
        ("server", _server),
        ("predictions", _predictions),
    )
    for name, look in looks:
        try:
            yield look()
        except Exception as error:  # noqa: BLE001 - a doctor reports what is wrong, also with it
            detail = f"cannot be checked: {type(error).__name__}: {error}"
            yield Check(name=name, verdict=Verdict.FAIL, detail=detail)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= (3, 11) and sys.platform == "linux"
    return Check(
        name="python",
        verdict=Verdict.OK if fine else Verdict.FAIL,
        detail=f"{found} on {sys.platform}",
        remedy="" if fine else "Frenzy needs Python 3.11 or newer on Linux",
    )


def _packages() -> Iterator[Check]:
    for name, remedy in (
        ("torch", "pip install torch"),
        ("deepspeed", f"pip install torch, then {install('node')}"),
        ("transformers", install("node")),
        ("nats-py", install("server")),
        ("redis", install("server")),
        ("fastapi", install("server")),
    ):
        try:
            yield Check(name=name, verdict=Verdict.OK, detail=version(name))
        except PackageNotFoundError:
            # A client needs none of them.
            yield Check(name=name, verdict=Verdict.WARN, detail="not installed", remedy=remedy)


def _program(program: binaries.Program) -> Check:
    def look() -> str:
        server = binaries.find(program)
        return f"{server.version_text} ({server.origin}: {server.path})"

    return _checked(program.title, look)


def _configurations() -> Check:
    return _checked("server configurations", lambda: str(servers.deploy_folder()))


def _gpus() -> Check:
    if has_nvidia_gpus():
        return Check(name="gpus", verdict=Verdict.OK, detail="NVML sees NVIDIA GPUs")
    detail = "no NVIDIA GPU: `frenzy up` emulates a mixed cluster on the CPU"
    return Check(name="gpus", verdict=Verdict.WARN, detail=detail)


def _disk(layout: Layout) -> Check:
    folder = next(p for p in (layout.root, *layout.root.parents) if p.exists())
    free = shutil.disk_usage(folder).free
    detail = f"{format_bytes(free)} free under {folder}"
    if not os.access(folder, os.W_OK):
        remedy = "set XDG_DATA_HOME to a folder of yours"
        return Check(
            name="data folder", verdict=Verdict.FAIL, detail=f"cannot write {folder}", remedy=remedy
        )
    low = free < _LOW_DISK_BYTES
    return Check(
        name="data folder",
        verdict=Verdict.WARN if low else Verdict.OK,
        detail=detail,
        remedy="checkpoints and logs need space: free some" if low else "",
    )


def _shared_memory() -> Check:
    free = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0  # noqa: S108
    low = free < GIB // 4
    return Check(
        name="shared memory",
        verdict=Verdict.WARN if low else Verdict.OK,
        detail=f"{format_bytes(free)} free in /dev/shm",
        remedy="in a container: docker run --shm-size=1g" if low else "",
    )


def _port(layout: Layout) -> Check:
    status = control.running(layout)
    if status is not None:
        return Check(name="port", verdict=Verdict.OK, detail=f"`frenzy up` serves {status.url}")

    def look() -> str:
        require_free(DEFAULT_PORT)
        return f"{DEFAULT_PORT} is free"

    return _checked("port", look, otherwise=Verdict.WARN)


def _credentials() -> Check:
    path = config.user_file()
    if not path.exists():
        return Check(name="credentials", verdict=Verdict.OK, detail=f"no {path} yet")
    mode = path.stat().st_mode & 0o777
    open_to_others = bool(mode & 0o077)
    return Check(
        name="credentials",
        verdict=Verdict.FAIL if open_to_others else Verdict.OK,
        detail=f"{path} has mode {mode:04o}",
        remedy=f"chmod 600 {path}" if open_to_others else "",
    )


def _certificates(layout: Layout) -> Check:
    """Look at the certificates that this machine serves with, or trusts as a node."""
    if not layout.certificate.exists() and not layout.joined.exists():
        return Check(name="certificates", verdict=Verdict.OK, detail="none: all is on loopback")
    # A bare client has no certificates, and no cryptography.
    from frenzy.local.certificates import RENEW_BEFORE, ends  # noqa: PLC0415 - see above
    from frenzy.local.joining import NodeFolder  # noqa: PLC0415 - see above

    remedies = {
        layout.certificate: "frenzy up renews it, and keeps it renewed while it runs",
        NodeFolder(layout.joined).authority: "make a token and join again: frenzy node join",
    }
    first = min((path for path in remedies if path.exists()), key=ends, default=None)
    if first is None:
        return Check(name="certificates", verdict=Verdict.OK, detail="of a public authority")
    left = ends(first) - dt.datetime.now(dt.UTC)
    if left > RENEW_BEFORE:
        verdict = Verdict.OK
    else:
        verdict = Verdict.WARN if left > dt.timedelta() else Verdict.FAIL
    return Check(
        name="certificates",
        verdict=verdict,
        detail=f"{first} {'expired' if verdict is Verdict.FAIL else 'expires'} {ends(first):%F}",
        remedy="" if verdict is Verdict.OK else remedies[first],
    )


def _server() -> Check:
    wrong: list[CheckView] = []

    def look() -> str:
        with Client(retry=Retry(attempts=1)) as client:
            nodes = client.nodes()
            wrong.extend(check for check in client.readiness().checks if not check.ok)
            return f"{client.url} answers, {len(nodes)} nodes"

    found = _checked("server", look, otherwise=Verdict.WARN)
    if not wrong:
        return found
    names = {check.name for check in wrong}
    return Check(
        name="server",
        verdict=Verdict.FAIL,
        detail="; ".join(f"{check.name}: {check.detail}" for check in wrong),
        remedy="frenzy admin reconcile" if SAFE_MODE in names else "",
    )


def _predictions() -> Check:
    """Ask whether memory is as predicted; where no server answers, that was said already."""
    try:
        with Client(retry=Retry(attempts=1)) as client:
            drifts = client.admin.drifts()
    except FrenzyError as error:
        return Check(name="predictions", verdict=Verdict.OK, detail=f"not known: {error.message}")
    if not drifts:
        return Check(name="predictions", verdict=Verdict.OK, detail="within their bands")
    detail = "; ".join(
        f"{one.outside} of the last {one.runs} runs of {one.group} were outside their band, "
        f"observed / predicted is {one.ratio:.2f}"
        for one in drifts
    )
    return Check(
        name="predictions",
        verdict=Verdict.WARN,
        detail=detail,
        remedy="look for what changed: a driver, torch, longer sequences, a script",
    )


def _checked(name: str, look: Callable[[], str], *, otherwise: Verdict = Verdict.FAIL) -> Check:
    try:
        return Check(name=name, verdict=Verdict.OK, detail=look())
    except FrenzyError as error:
        remedy = next(iter(error.suggestions), "")
        return Check(name=name, verdict=otherwise, detail=error.message, remedy=remedy)
