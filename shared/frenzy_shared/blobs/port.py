"""What services may ask of the blob store. A digest is ``sha256:<64 hex>``."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol


class BlobStore(Protocol):
    """Immutable bytes by digest. Raises ``BlobMissing``, ``BlobCorrupt``, ``StorageFull``."""

    async def put(self, chunks: AsyncIterator[bytes], *, expected: str | None = None) -> str:
        """Store bytes and return their digest; with ``expected``, refuse any other content.

        Nothing is visible until everything is on disk: written aside, fsynced, renamed.
        """
        ...

    async def put_file(self, path: Path) -> str:
        """Store a file."""
        ...

    def open(self, digest: str) -> AsyncIterator[bytes]:
        """Yield the bytes, verifying the digest at the end."""
        ...

    async def fetch(self, digest: str, target: Path) -> None:
        """Write the bytes to ``target`` atomically, verified."""
        ...

    async def exists(self, digest: str) -> bool:
        """Tell whether the digest is stored."""
        ...

    async def size(self, digest: str) -> int:
        """Return the size in bytes."""
        ...


class CollectableBlobs(Protocol):
    """Blobs whose owner can remove those that nobody needs."""

    async def unused(self, seconds: float) -> list[str]:
        """Return the digests that nobody stored or asked for (``exists``) in ``seconds``."""
        ...

    async def remove(self, digest: str, *, unused_s: float) -> bool:
        """Remove a blob unless somebody asked for it within ``unused_s``."""
        ...
