"""Small files that are whole or absent, and private because they hold secrets."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` with mode 0600, all or nothing; it outlives a power cut."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: no part of a secret stays
        aside.unlink(missing_ok=True)
        raise
    rename(aside, path)


def rename(old: Path, new: Path) -> None:
    """Give a file, whose contents are safe, another name in its folder, durably."""
    old.replace(new)
    sync_folder(new.parent)


def sync_folder(folder: Path) -> None:
    """Make names that appeared in ``folder`` durable: a file's own fsync does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
