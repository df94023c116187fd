"""Write folders that are either complete or absent, also after a power cut."""

import os
import shutil
from pathlib import Path


def publish(temporary: Path, final: Path) -> None:
    """Make ``temporary`` durable and give it its final name, replacing what has that name.

    Both must be in one folder. Afterwards a reader sees the old content, the new one or, for
    an instant while replacing, none; never a half.

    Raises:
        OSError: the disk is full or failing; ``final`` is as it was.
    """
    _sync_tree(temporary)
    aside = final.with_name(f".old-{final.name}")
    shutil.rmtree(aside, ignore_errors=True)
    if final.exists():
        final.rename(aside)
    temporary.rename(final)
    _sync(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def clear_leftovers(folder: Path, attempt: int) -> None:
    """Remove what attempts before ``attempt`` left unfinished in ``folder``."""
    for path in folder.glob(".tmp-*"):
        owner = path.name.removeprefix(".tmp-").partition("-")[0]
        if owner.isdecimal() and int(owner) < attempt:
            shutil.rmtree(path, ignore_errors=True)


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
