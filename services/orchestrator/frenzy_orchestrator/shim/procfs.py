"""What /proc says about processes. A process is named by (pid, start time): pids are reused."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZX")
_FREEZE_LOOKS = 100  # what still forks after so many is killed all the same, and looked for again


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """The part of /proc/<pid>/stat that identifies a process. ``start`` is in clock ticks."""

    pid: int
    parent: int
    state: str
    start: int


def boot_id() -> str:
    """Return the kernel's identifier of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def boottime() -> float:
    """Return seconds since boot on the clock that counts suspension and never jumps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def stat(pid: int) -> ProcessStat | None:
    """Return a process's identity, ``None`` when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets; everything after the last ')' is regular.
    fields = text.rsplit(")", 1)[1].split()
    return ProcessStat(pid=pid, state=fields[0], parent=int(fields[1]), start=int(fields[19]))


def is_alive(pid: int, start: int) -> bool:
    """Tell whether that very process still runs; a zombie does not."""
    found = stat(pid)
    return found is not None and found.start == start and found.state not in _DEAD_STATES


def descendants(root: int) -> list[ProcessStat]:
    """Return every living descendant of ``root``, zombies left out, parents before children."""
    children: dict[int, list[ProcessStat]] = {}
    for pid in pids():
        if (found := stat(pid)) is not None:
            children.setdefault(found.parent, []).append(found)
    reached: list[ProcessStat] = []
    frontier = [root]
    while frontier:
        below = children.get(frontier.pop(), [])
        reached.extend(below)
        frontier.extend(process.pid for process in below)
    return [process for process in reached if process.state not in _DEAD_STATES]


def with_environment(marker: bytes) -> list[ProcessStat]:
    """Return the living processes that were started with ``marker`` in an environment entry.

    Processes of other users, which cannot be ours, are skipped.
    """
    found: list[ProcessStat] = []
    for pid in pids():
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        process = stat(pid) if marker in environment else None
        if process is not None and process.state not in _DEAD_STATES:
            found.append(process)
    return found


def send(processes: Iterable[ProcessStat], number: int) -> None:
    """Send a signal to each process that is still the one it was."""
    for process in processes:
        if is_alive(process.pid, process.start):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue  # it ended between the look and the signal: what we wanted


def end(find: Callable[[], list[ProcessStat]]) -> list[ProcessStat]:
    """Kill everything that ``find`` sees, and what that starts meanwhile; return what was found.

    All are stopped before any is killed: to kill one of many that fork without pause only makes
    room for another, while one that is stopped keeps its place below the limit and forks no more.
    """
    found: dict[tuple[int, int], ProcessStat] = {}
    for _ in range(_FREEZE_LOOKS):
        new = [process for process in find() if (process.pid, process.start) not in found]
        if not new:
            break
        send(new, signal.SIGSTOP)
        found.update(((process.pid, process.start), process) for process in new)
    send(found.values(), signal.SIGKILL)
    return list(found.values())


def pids() -> Iterator[int]:
    """Yield the process ids of this moment."""
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only, on a hot path
        if name.isdigit():
            yield int(name)
