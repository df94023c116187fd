"""Back up what `frenzy up` keeps, while it runs: the store, who may do what, bundles and data.

Not in it: checkpoints, models and the archive, which are plain folders; logs; and the event
stream, from which a store that is older is put right.
"""

import datetime as dt
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, Self

from frenzy._version import __version__
from frenzy.local import appendonly
from frenzy.local.files import read_json, write_json
from frenzy.local.layout import Layout
from frenzy_shared.errors import InvalidState, Misconfigured, StorageFull
from frenzy_shared.files import sync_folder

Progress = Callable[[str], None]

FORMAT: Final = 1
IDENTITIES: Final = ("secrets.json", "secrets.keys", "options.json", "keys", "tls")
USERS: Final = "etc/nats-users.json"
_ABOUT: Final = "backup.json"
_TEMPORARY: Final = ("incoming", ".tmp-*")  # blobs on their way


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a folder says about the backup in it. Written last: without it there is none."""

    format: int
    frenzy: str
    created: str
    store: Mapping[str, str]  # SHA-256 by file
    blobs: bool

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it.

        Raises:
            InvalidState: there is no backup, or it was not finished.
            Misconfigured: it is of a newer Frenzy, or damaged.
        """
        stored = read_json(folder / _ABOUT)
        if stored is None:
            raise InvalidState(f"there is no finished backup in {folder}")
        if stored.get("format") != FORMAT:
            raise Misconfigured(
                f"the backup in {folder} was made by Frenzy {stored.get('frenzy', 'unknown')}, in "
                "a format that this one does not know",
                suggestions=("restore it with that version",),
            )
        if set(stored) != {field.name for field in fields(cls)}:
            raise Misconfigured(f"{folder / _ABOUT} is damaged")
        return cls(**stored)


def back_up(layout: Layout, target: Path, progress: Progress, *, blobs: bool) -> Backup:
    """Copy everything to a new folder.

    The store comes first: bundles that a job in it names were there before the job.

    Raises:
        InvalidState: there is nothing to back up, or the folder is not empty.
        StorageFull: the target's disk is full.
        Misconfigured: the target cannot be written.
    """
    source = layout.server("valkey") / appendonly.FOLDER
    if not source.exists():
        raise InvalidState(
            f"nothing to back up: there is no store in {layout.root}",
            suggestions=("run this where `frenzy up` runs, as the same user",),
        )
    try:
        if target.exists() and any(target.iterdir()):
            raise InvalidState(f"{target} is not empty", suggestions=("name a new folder",))
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        progress("the store")
        sums = appendonly.copy(source, target / appendonly.FOLDER)
        progress("identities and keys")
        copy_private(layout.root, target)
        if blobs:
            progress("bundles and data")
            copy_blobs(layout.blobs, target / "blobs")
        about = Backup(
            format=FORMAT,
            frenzy=__version__,
            created=f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} UTC",
            store=sums,
            blobs=blobs,
        )
        write_json(target / _ABOUT, asdict(about))
    except OSError as error:
        raise _cannot(target, error) from None
    return about


def copy_private(source: Path, target: Path) -> tuple[str, ...]:
    """Copy identities, keys and options that ``target`` lacks; return which those were."""
    copied: list[str] = []
    for name in (*IDENTITIES, USERS):
        here, there = source / name, target / name
        if not here.exists() or there.exists():
            continue
        there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there)
        else:
            shutil.copy2(here, there)
        sync_folder(there.parent)
        copied.append(name)
    return tuple(copied)


def copy_blobs(source: Path, target: Path) -> None:
    """Copy blobs that ``target`` lacks; within one disk they share their space."""
    if not source.exists():
        return
    shutil.copytree(
        source,
        target,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns(*_TEMPORARY),
        copy_function=_blob,
    )


def _blob(source: str, target: str) -> None:
    """Link or copy a blob; one that was collected meanwhile is needed by nobody."""
    if Path(target).exists():
        return
    try:
        os.link(source, target)
    except FileNotFoundError:
        return
    except OSError:  # another disk, or a file system without links
        shutil.copy2(source, target)


def _cannot(target: Path, error: OSError) -> Misconfigured | StorageFull:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"the disk of {target} is full", suggestions=("remove that folder",))
    return Misconfigured(f"cannot write {error.filename or target}: {error.strerror}")
