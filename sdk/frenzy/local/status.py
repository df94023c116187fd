"""What a supervisor says about itself, and who may be one: ``status.json`` and the lock."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from frenzy.local.files import read_json, write_json
from frenzy.local.processes import ProcessMark


class Phase(StrEnum):
    """Where the whole is."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStatus:
    """One child as the supervisor sees it."""

    name: str
    mark: ProcessMark | None
    restarts: int
    last_exit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The whole. ``detail`` is the step that is being taken, or why it failed."""

    phase: Phase
    detail: str
    url: str
    supervisor: ProcessMark | None
    children: tuple[ChildStatus, ...]

    def write(self, path: Path) -> None:
        """Store it."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read what was stored last; ``None`` when there is nothing readable."""
        value = read_json(path)
        if value is None:
            return None
        return cls(
            phase=Phase(value["phase"]),
            detail=value["detail"],
            url=value["url"],
            supervisor=_mark(value["supervisor"]),
            children=tuple(
                ChildStatus(**{**child, "mark": _mark(child["mark"])})
                for child in value["children"]
            ),
        )

    @property
    def marks(self) -> tuple[ProcessMark, ...]:
        """Return the children that were started."""
        return tuple(child.mark for child in self.children if child.mark is not None)


@contextmanager
def hold(lock: Path) -> Iterator[bool]:
    """Try to be the one that holds a lock; the kernel frees it when the process is gone."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def held(lock: Path) -> bool:
    """Tell whether a living process holds a lock."""
    if not lock.exists():
        return False
    with hold(lock) as ours:
        return not ours


def _mark(value: dict[str, Any] | None) -> ProcessMark | None:
    return None if value is None else ProcessMark.from_json(value)
