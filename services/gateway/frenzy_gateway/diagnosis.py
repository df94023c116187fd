"""Why the store is away, as far as its server's log on this machine tells."""

from pathlib import Path
from typing import Final

from frenzy_shared.errors import FrenzyError
from frenzy_shared.state.port import StoreUnreachable

_TAIL_BYTES: Final = 8192
_FULL: Final = "No space left on device"
_WELL: Final = "Ready to accept connections"  # what it says once it has read its files


def explained(error: FrenzyError, log: Path | None) -> FrenzyError:
    """Return the error with its cause, if it is the store's and the log names one."""
    if log is None or not isinstance(error, StoreUnreachable) or not disk_is_full(log):
        return error
    return StoreUnreachable(
        f"the store is down because its disk is full ({error.message})",
        suggestions=("free space where the store's data is: it comes back by itself",),
    )


def disk_is_full(log: Path) -> bool:
    """Tell whether the last words of a Valkey server are about a full disk."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            said = file.read().decode("utf-8", "replace")
    except OSError:  # there is no such log, or it cannot be read: nothing is known
        return False
    return said.rfind(_FULL) > said.rfind(_WELL)
