"""A small disk of its own under a folder, which a test can fill and empty again."""

import contextlib
import errno
import os
import subprocess
from pathlib import Path

_CHUNK = b"\0" * 4096


class SmallDisk:
    """A tmpfs on ``folder``. Needs root, or a mount namespace of one's own."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder = folder
        self._size_bytes = size_bytes
        self._ballast = folder / ".ballast"

    def mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        options = f"size={self._size_bytes},mode=700"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "frenzy-test", str(self.folder)], check=True
        )

    def unmount(self) -> None:
        """Take the disk away with all that is on it, even while somebody has a file open."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def fill(self) -> None:
        """Leave no free byte, as far as others leave it so."""
        with self._ballast.open("ab") as file:
            free = os.statvfs(self.folder)
            with _full():
                size = max(1, free.f_bavail * free.f_frsize)
                os.posix_fallocate(file.fileno(), file.tell(), size)
            file.seek(0, os.SEEK_END)
            with _full():
                while True:
                    os.write(file.fileno(), _CHUNK)

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def _full():
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
