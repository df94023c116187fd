"""Blobs as files of one directory: ``sha256/<first two>/<64 hex>``, shared by many processes."""

import asyncio
import hashlib
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
        """Tell whether the digest is stored."""
        return await asyncio.to_thread(self._path(digest).is_file)

    async def size(self, digest: str) -> int:
        """Return the size in bytes."""
        try:
            status = await asyncio.to_thread(self._path(digest).stat)
        except FileNotFoundError:
            raise BlobMissing(f"no blob {digest}") from None
        return status.st_size

    def _path(self, digest: str) -> Path:
        name = hex_of(digest)
        return self._root / "sha256" / name[:2] / name
