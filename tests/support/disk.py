"""A disk of a server's own whose power can be cut: an ext4 file system in a loop-mounted image.

What programs wrote without fsync is in the kernel's memory, not in the image. A copy of the
image's blocks, taken while it is mounted, is therefore what a machine finds on its disk after the
power was away: everything that reached the disk, and nothing else. It says nothing about disks
that claim to have stored what they have not.
"""

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

# The file system's journal is not written by time, only when somebody asks for durability.
_OPTIONS = "loop,commit=300"
_BLOCK = 1 << 20


def _can_mount() -> bool:
    return (
        os.geteuid() == 0 and Path("/dev/loop-control").exists() and bool(shutil.which("mkfs.ext4"))
    )


needs_loop_mounts = pytest.mark.skipif(
    not _can_mount(), reason="needs root, loop devices and e2fsprogs: a disk of its own"
)


class Disk:
    """One mounted image. ``folder`` is where it is mounted, before and after a power cut."""

    def __init__(self, image: Path, folder: Path, *, megabytes: int = 96) -> None:
        self.folder = folder
        self._image = image
        self._megabytes = megabytes

    def __enter__(self) -> "Disk":
        with self._image.open("wb") as file:
            file.truncate(self._megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        self._unmount()

    def copy(self) -> Path:
        """Copy what is on the disk at this moment; whoever writes to it must be stopped.

        The kernel may write by itself meanwhile, so it is read again until nothing changed.
        """
        copy = self._image.with_suffix(".copy")
        for _ in range(20):
            seen = _copied(self._image, copy)
            if seen == _copied(self._image, copy):
                return copy
        raise AssertionError(f"{self._image} does not stand still")

    def restore(self, copy: Path) -> None:
        """Mount the copy in place of the disk, as after a restart of the machine."""
        self._unmount()
        copy.replace(self._image)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", _OPTIONS, str(self._image), str(self.folder))

    def _unmount(self) -> None:
        for _ in range(50):  # a killed program's files are closed a moment after its end
            done = subprocess.run(["umount", str(self.folder)], capture_output=True, check=False)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"umount {self.folder}: {done.stderr.decode()}")


def _copied(source: Path, target: Path) -> str:
    """Copy the file, holes left out, and return a digest of what was read."""
    digest = hashlib.blake2b()
    with source.open("rb") as reading, target.open("wb") as writing:
        while block := reading.read(_BLOCK):
            digest.update(block)
            if block.strip(b"\0"):
                writing.write(block)
            else:
                writing.seek(len(block), os.SEEK_CUR)
        writing.truncate(source.stat().st_size)
    return digest.hexdigest()


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
