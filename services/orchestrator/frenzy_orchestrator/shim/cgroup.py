"""Cgroups of one attempt, where the system lets us make them.

Version 2 kills everything in one step, and bounds the number of processes where its ``pids``
controller is on. Where that controller is still one of version 1, it gets a cgroup there as well.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup that holds one attempt's ranks and everything they start."""

    path: Path

    def join(self) -> None:
        """Move the calling process in."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kill(self) -> None:
        """Kill every process inside, forks in flight included."""
        (self.path / "cgroup.kill").write_text("1")

    def bound(self, processes: int) -> bool:
        """Let at most so many processes and threads live inside; False: it cannot count them."""
        try:
            (self.path / "pids.max").write_text(str(processes))
        except OSError:
            return False
        return True

    def members(self) -> list[int]:
        """Return the process ids inside, [] once the cgroup is gone."""
        try:
            return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]
        except FileNotFoundError:
            return []

    def oom_kills(self) -> int:
        """Return how many processes the kernel killed for memory; 0 where it does not count."""
        try:
            lines = (self.path / "memory.events").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def remove(self) -> None:
        """Remove the empty cgroup; one that is already gone is fine."""
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return


def create(name: str) -> Cgroup | None:
    """Make a cgroup below our own; ``None`` where that is not allowed or not supported."""
    return _make(_own_folder("", "cgroup2"), name, "cgroup.kill")


def create_counting(name: str) -> Cgroup | None:
    """Make a cgroup of version 1's ``pids`` controller; ``None`` where there is none of those."""
    return _make(_own_folder("pids", "cgroup"), name, "pids.max")


def counts_processes() -> bool:
    """Tell whether a cgroup that we make here can bound the number of its processes."""
    name = f"frenzy-probe-{os.getpid()}"
    for made in (create(name), create_counting(name)):
        if made is not None:
            able = made.bound(1)
            made.remove()
            if able:
                return True
    return False


def _make(parent: Path | None, name: str, needed: str) -> Cgroup | None:
    if parent is None:
        return None
    path = parent / name
    try:
        path.mkdir(exist_ok=True)
    except OSError:  # not root, read-only, not delegated: the walk over descendants serves instead
        return None
    if os.access(path / needed, os.W_OK) and os.access(path / "cgroup.procs", os.W_OK):
        return Cgroup(path)
    path.rmdir()
    return None


def _own_folder(controller: str, kind: str) -> Path | None:
    """Return our cgroup's folder in the hierarchy of a controller; "" is version 2's only one."""
    own = next(
        (
            path
            for _, controllers, path in (
                line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()
            )
            if controller == controllers or (controller and controller in controllers.split(","))
        ),
        None,
    )
    mount = next(
        (
            fields[4]
            for fields in map(str.split, Path("/proc/self/mountinfo").read_text().splitlines())
            if _is_mount_of(fields[fields.index("-") + 1 :], controller, kind)
        ),
        None,
    )
    if own is None or mount is None:
        return None
    folder = Path(mount) / own.lstrip("/")
    return folder if folder.is_dir() else None


def _is_mount_of(described: list[str], controller: str, kind: str) -> bool:
    """Judge the type, the source and the options of a mount."""
    if described[0] != kind:
        return False
    return not controller or controller in described[2].split(",")
