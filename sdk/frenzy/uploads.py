"""Pack a specification's local paths, each into one blob that is named by its digest."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from frenzy.specs import LocalSpec, wrong_field
from frenzy_shared.blobs import bundle
from frenzy_shared.errors import BadRequest, PayloadTooLarge
from frenzy_shared.messages.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A specification without local paths, and the blobs (path by digest) that it names."""

    spec: JobSpec
    blobs: Mapping[str, Path]


@contextmanager
def packed(local: LocalSpec) -> Iterator[Packed]:
    """Pack into temporary files that are removed at the end.

    Raises:
        InvalidSpec: a path is empty, unreadable, too large, or holds what a bundle cannot.
    """
    found: dict[str, Path] = {}
    try:
        yield _pack(local, found)
    finally:
        for archive in found.values():
            archive.unlink(missing_ok=True)


@asynccontextmanager
async def packed_async(local: LocalSpec) -> AsyncIterator[Packed]:
    """Do as ``packed`` without blocking the event loop."""
    found: dict[str, Path] = {}
    try:
        yield await asyncio.to_thread(_pack, local, found)
    finally:
        for archive in found.values():
            archive.unlink(missing_ok=True)


def _pack(local: LocalSpec, found: dict[str, Path]) -> Packed:
    """Fill ``found`` with archives by field as they are made, so that none is left behind."""
    references: dict[str, str] = {}
    blobs: dict[str, Path] = {}
    for name, path in local.paths.items():
        if path.is_file() and path.stat().st_size == 0:
            raise wrong_field(name, f"{path} is empty")
        try:
            archive = found[name] = bundle.pack(path)
        except (BadRequest, PayloadTooLarge) as error:
            raise wrong_field(name, error.message, error.suggestions) from None
        digest = _digest(archive)
        blobs[digest] = archive
        references[name] = f"blob:{digest}"
    return Packed(spec=local.finish(references), blobs=blobs)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
