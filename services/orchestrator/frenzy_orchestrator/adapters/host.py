"""How much memory this machine has for ranks."""

from pathlib import Path
from typing import Final

_TOTAL: Final = Path("/proc/meminfo")
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")  # of a container, in cgroup version 2


def host_memory_bytes(total: Path = _TOTAL, limit: Path = _LIMIT) -> int:
    """Return the machine's memory, or the container's limit where that is less; 0: unknown."""
    sizes = [size for size in (_first_number(total, 1024), _first_number(limit, 1)) if size]
    return min(sizes, default=0)


def _first_number(path: Path, unit: int) -> int:
    """Return the first whole number of a file's first line in bytes, 0 when there is none."""
    try:
        line = path.read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0
    return next((int(word) * unit for word in line.split() if word.isdecimal()), 0)
