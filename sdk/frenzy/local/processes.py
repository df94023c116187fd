"""Processes of this machine by identity: a pid alone may belong to somebody else by now."""

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """One process for ever: pid, start time in clock ticks since boot, and which boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the mark of a living process, ``None`` when there is none."""
        start = _start_ticks(pid)
        return None if start is None else cls(pid=pid, start_ticks=start, boot_id=boot_id())

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read what ``dataclasses.asdict`` made."""
        return cls(
            pid=int(value["pid"]),
            start_ticks=int(value["start_ticks"]),
            boot_id=str(value["boot_id"]),
        )

    @property
    def alive(self) -> bool:
        """Tell whether that very process still runs."""
        return self == ProcessMark.of(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process still runs."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def end_all(marks: Iterable[ProcessMark], grace_s: float) -> None:
    """End processes that are not our children: SIGTERM, wait, SIGKILL, wait."""
    left = [mark for mark in marks if mark.alive]
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        for mark in left:
            mark.send(number)
        deadline = time.monotonic() + patience_s
        while left and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            left = [mark for mark in left if mark.alive]


def boot_id() -> str:
    """Return this boot's random id."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def listener_of(port: int) -> str:
    """Say who listens on a local TCP port, as far as /proc tells: ``python (pid 12)`` or ""."""
    inodes = _listening_inodes(port)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _holds(folder, inodes):
            return f"{_command(folder)} (pid {folder.name})"
    return ""


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _listening_inodes(port: int) -> frozenset[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            cells = row.split()
            if cells[3] == "0A" and int(cells[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{cells[9]}]")
    return frozenset(found)


def _holds(folder: Path, inodes: frozenset[str]) -> bool:
    try:
        return any(str(link.readlink()) in inodes for link in (folder / "fd").iterdir())
    except OSError:  # another user's, or gone
        return False


def _command(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a process"
