"""Tell this node's own use of devices from anybody else's."""

from pathlib import Path

from frenzy_orchestrator.shim import locks
from frenzy_orchestrator.shim.launch import MARKER


class AttemptUse:
    """Knows the attempts below one data folder."""

    def __init__(self, data_dir: Path) -> None:
        """Look below ``data_dir``."""
        self._data_dir = data_dir

    def is_ours(self, pid: int) -> bool:
        """Tell whether a process was started for one of this node's attempts."""
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False
        return f"{MARKER}={self._data_dir / 'attempts'}/".encode() in environment

    def is_held(self, device: str) -> bool:
        """Tell whether the device's lock is taken."""
        path = lock_path(self._data_dir, device)
        return path.exists() and not locks.is_free(path)


def lock_path(data_dir: Path, device: str) -> Path:
    """Return the lock file of a device."""
    return data_dir / "devices" / f"{device}.lock"
