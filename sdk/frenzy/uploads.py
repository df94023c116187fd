"""Pack a specification's local paths, each into one blob that is named by its digest."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from frenzy.specs import LocalSpec
from frenzy_shared.blobs import bundle
from frenzy_shared.errors import InvalidSpec, PayloadTooLarge, wrong_field
from frenzy_shared.messages.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A specification without local paths, and the blobs (path by digest) that it names."""

    spec: JobSpec
    blobs: Mapping[str, Path]


@contextmanager
def packed(local: LocalSpec) -> Iterator[Packed]:
    """Pack into a temporary folder that is removed at the end.

    Raises:
        InvalidSpec: a path is empty, unreadable, too large, or holds what a bundle cannot.
    """
    with tempfile.TemporaryDirectory(prefix="frenzy-upload-") as folder:
        yield _pack(local, Path(folder))


@asynccontextmanager
async def packed_async(local: LocalSpec) -> AsyncIterator[Packed]:
    """Do as ``packed`` without blocking the event loop."""
    with tempfile.TemporaryDirectory(prefix="frenzy-upload-") as folder:
        yield await asyncio.to_thread(_pack, local, Path(folder))


def _pack(local: LocalSpec, folder: Path) -> Packed:
    references: dict[str, str] = {}
    blobs: dict[str, Path] = {}
    for name, path in local.paths.items():
        if path.is_file() and path.stat().st_size == 0:
            raise wrong_field(name, f"{path} is empty")
        archive = folder / f"{name}.tar"
        try:
            digest = bundle.pack(path, archive)
        except (InvalidSpec, PayloadTooLarge) as error:
            raise wrong_field(name, error.message, error.suggestions) from None
        blobs[digest] = archive
        references[name] = f"blob:{digest}"
    return Packed(spec=local.finish(references), blobs=blobs)
