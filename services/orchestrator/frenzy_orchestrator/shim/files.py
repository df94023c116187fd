"""Write files that are either wholly there or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data``; ``durable`` makes it survive power loss, not only a crash.

    Raises:
        OSError: nothing was changed (for example ENOSPC).
    """
    aside = path.with_name(f".{path.name}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, value: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replace ``path`` by ``value`` as JSON, atomically."""
    write_atomically(path, json.dumps(value).encode(), durable=durable)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in ``path``; ``None`` when it is missing, torn or not an object."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sync_folder(folder: Path) -> None:
    """Make renames and new names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ReservedFile:
    """A file whose space is taken in advance, so that a full disk cannot lose it later."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Take ``size_bytes`` under a hidden name; ``path`` does not exist until ``commit``."""
        self._path = path
        self._aside = path.with_name(f".{path.name}.reserved")
        self._descriptor = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.posix_fallocate(self._descriptor, 0, size_bytes)

    def commit(self, data: bytes) -> None:
        """Write ``data`` into the reserved space and give the file its name, durably."""
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._aside.replace(self._path)
        sync_folder(self._path.parent)
