"""The archive of forgotten jobs: a folder with a file a month, a JSON line for each job."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

from frenzy_shared.blobs.files import raise_if_full
from frenzy_shared.state.port import Json
from frenzy_shared.state.records import dumps


class FolderArchive:
    """Appends durably. A crash may leave half a line, never one that runs into the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def append(self, job: Json, finished_ms: int) -> None:
        """Write a job down before the store forgets it.

        Raises:
            StorageFull: the disk is; nothing may be forgotten.
        """
        month = datetime.fromtimestamp(finished_ms / 1000, UTC)
        path = self._folder / f"jobs-{month:%Y-%m}.jsonl"
        await asyncio.to_thread(self._append, path, f"{dumps(job)}\n".encode())

    def _append(self, path: Path, line: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                if file.tell() and not _ends_a_line(file.fileno(), file.tell()):
                    file.write(b"\n")
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise_if_full(error, path.parent)
            raise


def _ends_a_line(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"
