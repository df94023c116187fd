"""Places where a test lets a process die as by ``kill -9``; without the variable nothing happens.

``FRENZY_CRASHPOINT`` is the name of a point, where every process dies that gets there, or a
folder: who gets to a point of which the folder holds a file removes that file and dies, so each
file kills once and a restarted process lives. docs/explanation/reliability.md lists all points.
"""

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "FRENZY_CRASHPOINT"
EXIT_CODE: Final = 137  # 128 + SIGKILL


def reach(point: str) -> None:
    """Die here if this point is armed: no handler runs, no buffer is flushed, nothing is closed."""
    armed = os.environ.get(VARIABLE, "")
    if armed and (armed == point or _disarm(armed, point)):
        os._exit(EXIT_CODE)


def _disarm(folder: str, point: str) -> bool:
    """Take the point's file away; of several processes exactly one succeeds."""
    try:
        (Path(folder) / point).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
