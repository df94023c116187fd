"""What holds a rank in its bounds: limits of the kernel, a user of its own, a /tmp of its own.

All of it runs between fork and exec, or in the shim before any rank, as root where root is needed.
"""

import contextlib
import ctypes
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NEW_MOUNTS: Final = 0x00020000  # CLONE_NEWNS
_BIND: Final = 4096
_RECURSIVE: Final = 16384
_SLAVE: Final = 1 << 19
_SET_NO_NEW_PRIVILEGES: Final = 38
_UMASK: Final = 0o027  # the group of a job's checkpoint folder may read, others nothing
_SHARED_TMP: Final = ("/tmp", "/var/tmp")  # noqa: S108 - what is covered, not what is used


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The user that ranks run as. ``groups``: further groups, those of device nodes say."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one rank; 0 leaves what the agent itself has.

    ``processes`` counts threads too. The kernel counts them by user, so it bounds a rank only
    under a user of its own; a cgroup's ``pids.max`` does it for every user.
    """

    processes: int = 0
    open_files: int = 0
    file_bytes: int = 0
    address_space_bytes: int = 0


NO_LIMITS: Final = Limits()


def limit(limits: Limits, *, ranks: int) -> None:
    """Bound the calling process and what it starts; ``ranks`` share the user's processes."""
    _bound(resource.RLIMIT_CORE, 0)
    for kind, most in (
        (resource.RLIMIT_NPROC, limits.processes * ranks),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_AS, limits.address_space_bytes),
    ):
        if most:
            _bound(kind, most)


def become(user: RunAs) -> None:
    """Give up the present user for ever; what it executes gains no rights by set-uid bits."""
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    os.umask(_UMASK)
    ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def cover_tmp(folder: Path) -> bool:
    """Let the calling process and its children see ``folder`` as /tmp and /var/tmp.

    False where the system does not allow it (a container without the right to mount): TMPDIR
    then names the folder all the same.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0:
        return False
    # What the host mounts later still comes in; nothing goes out.
    if libc.mount(b"none", b"/", None, _RECURSIVE | _SLAVE, None) != 0:
        return False
    source = str(folder).encode()
    return all(libc.mount(source, over.encode(), None, _BIND, None) == 0 for over in _SHARED_TMP)


def read_limits(value: Mapping[str, int] | None) -> Limits:
    """Read what an older agent may not have written."""
    return Limits(**value) if value else NO_LIMITS


def read_user(value: Mapping[str, object] | None) -> RunAs | None:
    """Read the user of ``launch.json``; None is the agent's own."""
    if value is None:
        return None
    groups = value["groups"]
    return RunAs(
        uid=int(str(value["uid"])),
        gid=int(str(value["gid"])),
        groups=tuple(int(group) for group in groups) if isinstance(groups, list) else (),
    )


def _bound(kind: int, most: int) -> None:
    """Set a limit; one that is lower already stays: only root could raise it."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(ValueError):  # a container's own bound on what even root may set
        resource.setrlimit(kind, (most, most))
