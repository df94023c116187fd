"""Tell when nats-server must be started again because its disk was full.

After one failed write it refuses a stream's messages for as long as it lives, also when there is
space again (seen with 2.15.1: the error sticks to the file that the stream is written to).
"""

import shutil
from pathlib import Path
from typing import Final

from frenzy_shared.units import MIB

_SAID: Final = b"no space left on device"
_ENOUGH_BYTES: Final = 64 * MIB


class FullDisk:
    """Reads what the server logs from now on; ``folder`` is on the disk that it writes to."""

    def __init__(self, log: Path, folder: Path) -> None:
        """Skip what an earlier server has said."""
        self._log = log
        self._folder = folder
        self._read = _size(log)
        self._was_full = False

    def is_over(self) -> bool:
        """Tell, once, that a write has failed for lack of space and that there is space again."""
        self._was_full |= _SAID in self._new_text()
        if not self._was_full or shutil.disk_usage(self._folder).free < _ENOUGH_BYTES:
            return False
        self._was_full = False
        return True

    def _new_text(self) -> bytes:
        size = _size(self._log)
        if size <= self._read:
            self._read = size  # somebody has cut it
            return b""
        with self._log.open("rb") as file:
            file.seek(max(0, self._read - len(_SAID)))  # a line may have come in two parts
            text = file.read()
        self._read = size
        return text


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
