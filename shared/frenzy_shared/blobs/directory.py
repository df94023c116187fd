"""Blobs as files of one directory: ``sha256/<first two>/<64 hex>``, shared by many processes."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from frenzy_shared.blobs.digest import hex_of
from frenzy_shared.blobs.files import read_file, settle, temporary_file, write_file
from frenzy_shared.errors import BlobCorrupt, BlobMissing


class DirectoryBlobStore:
    """A blob store in a local or shared file system.

    Everything is written to a temporary file beside its target, fsynced and renamed, so that a
    reader never sees a part, a crash leaves only a ``.tmp-`` file, and two writers of the same
    content do not disturb each other.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, chunks: AsyncIterator[bytes], *, expected: str | None = None) -> str:
        """Store a stream of bytes."""
        wanted = hex_of(expected) if expected is not None else None
        hashed = hashlib.sha256()
        with temporary_file(self._root / "incoming" / "blob") as (file, temporary):
            async for chunk in chunks:
                hashed.update(chunk)
                await asyncio.to_thread(file.write, chunk)
            actual = hashed.hexdigest()
            if wanted is not None and actual != wanted:
                raise BlobCorrupt(f"the content is sha256:{actual}, not {expected}")
            await asyncio.to_thread(settle, file, temporary, self._path(f"sha256:{actual}"))
        return f"sha256:{actual}"

    async def put_file(self, path: Path) -> str:
        """Store a file."""
        return await self.put(read_file(path))

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        """Yield the bytes and verify them at the end."""
        hashed = hashlib.sha256()
        try:
            async for chunk in read_file(self._path(digest)):
                hashed.update(chunk)
                yield chunk
        except FileNotFoundError:
            raise BlobMissing(f"no blob {digest}") from None
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise BlobCorrupt(f"the stored content of {digest} is sha256:{hashed.hexdigest()}")

    async def fetch(self, digest: str, target: Path) -> None:
        """Write the verified bytes to ``target``."""
        await write_file(self.open(digest), target)

    async def exists(self, digest: str) -> bool:
        """Tell whether the digest is stored; that somebody asked keeps it from being collected."""
        return await asyncio.to_thread(_touch, self._path(digest))

    async def unused(self, seconds: float) -> list[str]:
        """Return the digests that nobody stored or asked for in ``seconds``.

        What writers left behind that died longer ago than that is removed.
        """
        return await asyncio.to_thread(self._unused, time.time() - seconds)

    async def remove(self, digest: str, *, unused_s: float) -> bool:
        """Remove a blob unless somebody asked for it within ``unused_s``."""
        path, before = self._path(digest), time.time() - unused_s
        return await asyncio.to_thread(_remove_older, path, before)

    async def size(self, digest: str) -> int:
        """Return the size in bytes."""
        try:
            status = await asyncio.to_thread(self._path(digest).stat)
        except FileNotFoundError:
            raise BlobMissing(f"no blob {digest}") from None
        return status.st_size

    def _unused(self, before: float) -> list[str]:
        for leftover in self._root.glob("*/.tmp-*"):
            _remove_older(leftover, before)
        return sorted(
            f"sha256:{path.name}"
            for path in self._root.glob("sha256/??/*")
            if not path.name.startswith(".") and _is_older(path, before)
        )

    def _path(self, digest: str) -> Path:
        name = hex_of(digest)
        return self._root / "sha256" / name[:2] / name


def _touch(path: Path) -> bool:
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except PermissionError:  # a node that only reads
        return path.is_file()
    return True


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False


def _remove_older(path: Path, before: float) -> bool:
    if not _is_older(path, before):
        return False
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return True
