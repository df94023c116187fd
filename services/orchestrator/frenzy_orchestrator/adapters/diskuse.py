"""How much disk an attempt has filled: what its ranks may write to without asking."""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from frenzy_orchestrator.adapters.threads import in_own_thread
from frenzy_shared.units import format_bytes

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
_BLOCK_BYTES: Final = 512  # the unit of st_blocks, whatever the file system's is


async def excess(folders: Collection[Path], most_bytes: int) -> str:
    """Look every few seconds; return, with the numbers, once the folders take more than allowed."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            used = await in_own_thread(lambda: used_bytes(folders))
        except OSError as error:  # a disk that fails: looked at again
            log.warning("%s: %s", folders, error)
            continue
        if used > most_bytes:
            limit = f"{format_bytes(most_bytes)} (FRENZY_JOB_DISK_BYTES)"
            return f"its files take {format_bytes(used)}, more than {limit}"


def used_bytes(folders: Iterable[Path]) -> int:
    """Return the space that everything below the folders takes; links are not followed.

    A file with several names counts once, a sparse one with what it really takes. What vanishes
    during the look does not count, nor what is closed to an agent that is not root.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * _BLOCK_BYTES
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return total
