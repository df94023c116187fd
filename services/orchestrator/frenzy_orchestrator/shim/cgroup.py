"""A cgroup v2 of one attempt, where the system lets us make one."""

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
    parent = _own_folder()
    if parent is None:
        return None
    path = parent / name
    try:
        path.mkdir(exist_ok=True)
    except OSError:  # not root, read-only, not delegated: the walk over descendants serves instead
        return None
    if os.access(path / "cgroup.kill", os.W_OK) and os.access(path / "cgroup.procs", os.W_OK):
        return Cgroup(path)
    path.rmdir()
    return None


def _own_folder() -> Path | None:
    own = next(
        (
            line.partition("::")[2]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        ),
        None,
    )
    mount = next(
        (
            fields[4]
            for fields in map(str.split, Path("/proc/self/mountinfo").read_text().splitlines())
            if "cgroup2" in fields[fields.index("-") + 1 :][:1]
        ),
        None,
    )
    if own is None or mount is None:
        return None
    folder = Path(mount) / own.lstrip("/")
    return folder if folder.is_dir() else None
