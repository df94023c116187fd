"""Files that appear whole or not at all: written aside, fsynced, renamed."""

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from frenzy_shared.blobs.digest import CHUNK_BYTES
from frenzy_shared.errors import StorageFull
from frenzy_shared.files import sync_folder

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


async def write_file(chunks: AsyncIterator[bytes], target: Path) -> None:
    """Write a stream of bytes to ``target``: all of it, durably, or nothing.

    Raises:
        StorageFull: the disk is full; nothing is left behind.
    """
    with temporary_file(target) as (file, temporary):
        async for chunk in chunks:
            await asyncio.to_thread(file.write, chunk)
        await asyncio.to_thread(settle, file, temporary, target)


@contextlib.contextmanager
def temporary_file(target: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a file beside ``target``, removed at the end unless it was renamed.

    Raises:
        StorageFull: the disk is full.
    """
    temporary = target.with_name(f".tmp-{target.name[:100]}-{secrets.token_hex(8)}")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file, temporary
    except OSError as error:
        raise_if_full(error, target.parent)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def raise_if_full(error: OSError, folder: Path) -> None:
    """Raise ``StorageFull`` when that is what an operating system error means."""
    if error.errno in _FULL:
        raise StorageFull(
            f"the disk under {folder} is full: {error.strerror}",
            suggestions=(f"free space under {folder}, then try again",),
        ) from error


def settle(file: BinaryIO, temporary: Path, target: Path) -> None:
    """Make a written file durable under its final name: fsync, rename, fsync the folder."""
    file.flush()
    os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary.replace(target)
    for folder in (target.parent, target.parent.parent):  # the latter: the former may be new
        sync_folder(folder)


async def read_file(path: Path) -> AsyncIterator[bytes]:
    """Yield a file's bytes without blocking the event loop."""
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
    finally:
        file.close()
