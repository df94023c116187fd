"""Device locks: an exclusive flock per device is the proof that no two attempts share it."""

import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path

_RETRY_S = 0.05


def take(paths: Iterable[str], *, within_s: float) -> list[int]:
    """Lock every file and return the descriptors; the lock ends when the last copy is closed.

    Raises:
        BlockingIOError: one stayed locked for ``within_s`` seconds; none is held. Its
            ``filename`` says which.
    """
    deadline = time.monotonic() + within_s
    held: list[int] = []
    try:
        for path in sorted(paths):  # one order for all, so that two shims cannot block each other
            held.append(_take_one(path, deadline))  # noqa: PERF401 - the handler needs the part
    except OSError:
        for descriptor in held:
            os.close(descriptor)
        raise
    return held


def is_free(path: Path) -> bool:
    """Tell whether nobody holds the lock at this moment."""
    try:
        (descriptor,) = take([str(path)], within_s=0.0)
    except BlockingIOError:
        return False
    os.close(descriptor)
    return True


def _take_one(path: str, deadline: float) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise BlockingIOError(error.errno, "locked by another process", path) from None
            time.sleep(_RETRY_S)
        else:
            return descriptor
