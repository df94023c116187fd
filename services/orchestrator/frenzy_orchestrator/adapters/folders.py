"""``python -m frenzy_orchestrator.adapters.folders source target``: make a copy of a folder.

The child of ``copying``: it dies with the agent. One is started for every attempt with a work
folder, so it imports little.
"""

import ctypes
import os
import shutil
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from frenzy_shared.blobs.limits import EXCLUDED, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES
from frenzy_shared.errors import FrenzyError, InvalidSpec, PayloadTooLarge

BAD_SOURCE: Final = os.EX_DATAERR
_BAD_NODE: Final = os.EX_IOERR
_SET_PARENT_DEATH_SIGNAL: Final = 1
_CHUNK_BYTES: Final = 1024**2


def copy_folder(
    source: Path, target: Path, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES
) -> None:
    """Make ``target`` a copy of the folder ``source``: files, folders, links within it.

    ``.git``, ``__pycache__`` and ``.venv`` are left out, and modes are reduced to "may be
    executed or not", both as in bundles. What ``target`` held is gone.

    Raises:
        InvalidSpec: an entry cannot be read, is no file, folder or link, or leads out.
        PayloadTooLarge: more than ``max_bytes``, or too many or too deep entries.
        OSError: ``target`` cannot be written.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidSpec(f"{source} holds the node agent's own folder")
    shutil.rmtree(target, ignore_errors=True)  # a crash may have left a part
    _Copy(source, target, max_bytes, max_entries).folder(Path(), depth=0)


class _Copy:
    """One copy and what it may still take."""

    def __init__(self, source: Path, target: Path, max_bytes: int, max_entries: int) -> None:
        self._source = source
        self._target = target
        self._max_bytes = self._bytes_left = max_bytes
        self._max_entries = self._entries_left = max_entries

    def folder(self, place: Path, *, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise PayloadTooLarge(f"{self._source / place} is over {MAX_DEPTH} folders deep")
        (self._target / place).mkdir(parents=True)
        for name in self._names(self._source / place):
            self._entry(place / name, depth)

    def _names(self, folder: Path) -> list[str]:
        """List a folder, however large, no further than what may still be copied."""
        names: list[str] = []
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.name not in EXCLUDED:
                        self._count_entry()
                        names.append(entry.name)
        except OSError as error:
            raise _unreadable(folder, error) from error
        return names

    def _count_entry(self) -> None:
        self._entries_left -= 1
        if self._entries_left < 0:
            raise PayloadTooLarge(f"{self._source} holds more than {self._max_entries} entries")

    def _count_bytes(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise PayloadTooLarge(f"{self._source} is larger than {self._max_bytes} bytes")

    def _entry(self, place: Path, depth: int) -> None:
        path = self._source / place
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise _unreadable(path, error) from error
        if stat.S_ISDIR(mode):
            self.folder(place, depth=depth + 1)
        elif stat.S_ISREG(mode):
            self._file(place)
        elif stat.S_ISLNK(mode):
            (self._target / place).symlink_to(self._inner_link(path))
        else:
            raise InvalidSpec(f"{path} is a device, a pipe or a socket, not a file")

    def _file(self, place: Path) -> None:
        path = self._source / place
        try:  # not blocking: a file may have become a pipe since it was looked at
            reading = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            status = os.fstat(reading)
            executable = status.st_mode & stat.S_IXUSR
            self._check_size(status.st_size)
            with (self._target / place).open("xb") as copy:
                while chunk := _read(reading, path):
                    self._count_bytes(len(chunk))
                    copy.write(chunk)
                os.fchmod(copy.fileno(), 0o755 if executable else 0o644)
        finally:
            os.close(reading)

    def _check_size(self, size: int) -> None:
        """Refuse at once what can only fail after gigabytes were written."""
        if size > self._bytes_left:
            self._count_bytes(size)

    def _inner_link(self, path: Path) -> Path:
        try:
            leads_to = path.readlink()
            end = (path.parent / leads_to).resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise InvalidSpec(f"{path} is a link that leads nowhere: {error}") from error
        if leads_to.is_absolute() or not end.is_relative_to(self._source.resolve()):
            raise InvalidSpec(f"{path} is a link that leads out of {self._source}")
        return leads_to


def _read(descriptor: int, path: Path) -> bytes:
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidSpec:
    return InvalidSpec(f"{path} cannot be read: {error.strerror}")


def _main(argv: Sequence[str]) -> int:
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    try:
        copy_folder(Path(argv[0]), Path(argv[1]))
    except FrenzyError as error:
        sys.stderr.write(error.message)
        return BAD_SOURCE
    except OSError as error:
        sys.stderr.write(str(error))
        return _BAD_NODE
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
