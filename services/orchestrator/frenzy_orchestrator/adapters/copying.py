"""Copy a work folder of this node for an attempt, in a process of its own.

The folder is the user's: reading it may never return (a device, a dead network mount), and a
thread that hangs in it can be neither ended nor given back. A process can be killed.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

from frenzy_orchestrator.adapters import folders
from frenzy_shared.errors import InvalidSpec

_KILLED_WITHIN_S: Final = 2.0  # a process in an uninterruptible read is left to the kernel


async def copy_in_child(source: Path, target: Path) -> None:
    """Copy ``source`` to ``target`` in a child, which is killed when this is cancelled.

    Raises:
        InvalidSpec: the folder cannot be copied; the message names the path and why.
        OSError: the copy cannot be written.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", folders.__name__, str(source), str(target)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await asyncio.wait({asyncio.ensure_future(child.wait())}, timeout=_KILLED_WITHIN_S)
    if child.returncode:
        message = said.decode(errors="replace").strip() or f"ended with code {child.returncode}"
        raise InvalidSpec(message) if child.returncode == folders.BAD_SOURCE else OSError(message)
