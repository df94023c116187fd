"""Bundles: a work folder or data as one tar file with one possible content, and back, safely.

The same files give the same bytes on every machine (sorted, without owner, time or umask), so a
bundle's digest names its content and unchanged folders are not uploaded again. A bundle comes
from a user and is unpacked on a node: nothing in it is trusted.
"""

import hashlib
import os
import secrets
import shutil
import stat
import tarfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from frenzy_shared.blobs.digest import CHUNK_BYTES
from frenzy_shared.blobs.files import raise_if_full
from frenzy_shared.blobs.limits import EXCLUDED, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES
from frenzy_shared.errors import InvalidSpec, PayloadTooLarge

MAX_NAME_BYTES: Final = 255

_HEADER_BYTES: Final = 2048  # a member's own header and padding, at most, without its content


def pack(path: Path, target: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """Pack a file or a folder into the new tar file ``target`` and return its digest.

    A single file becomes a bundle of that one file. ``.git``, ``__pycache__`` and ``.venv`` are
    left out.

    Raises:
        InvalidSpec: missing, unreadable, empty, or a link or special file is in it.
        PayloadTooLarge: more than ``max_bytes`` or too many files.
        StorageFull: the disk under ``target`` is full.
    """
    try:
        with (
            target.open("xb") as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            _add_all(archive, path, max_bytes)
    except FileExistsError:
        raise
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise_if_full(error, target.parent)
        raise
    with target.open("rb") as packed:
        return f"sha256:{hashlib.file_digest(packed, 'sha256').hexdigest()}"


def unpack(file: Path, target: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Unpack a bundle into the new folder ``target``: all of it or nothing.

    Only plain files and folders with sane, distinct names get through; modes are reduced to
    "may be executed or not".

    Raises:
        InvalidSpec: naming the entry that is wrong, or saying that the archive is broken.
        PayloadTooLarge: it is larger than ``max_bytes`` or has too many entries.
        StorageFull: the disk under ``target`` is full.
    """
    aside = target.with_name(f".tmp-{target.name[:100]}-{secrets.token_hex(8)}")
    try:
        aside.mkdir(mode=0o700, parents=True)
        _unpack(file, aside, max_bytes)
        aside.chmod(0o755)
        aside.rename(target)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError):
            raise_if_full(error, target.parent)
        raise


def _unpack(file: Path, folder: Path, max_bytes: int) -> None:
    if file.stat().st_size > max_bytes + MAX_ENTRIES * _HEADER_BYTES:
        raise PayloadTooLarge(f"the bundle is over {max_bytes} bytes")
    try:
        with tarfile.open(file, mode="r:") as archive:  # "r:": compressed ones are refused
            _extract_all(archive, folder, max_bytes)
    except (tarfile.TarError, EOFError, UnicodeError, ValueError) as error:
        raise InvalidSpec(f"not a bundle, or a broken one: {error}") from error


def _add_all(archive: tarfile.TarFile, path: Path, max_bytes: int) -> None:
    entries = [(path.name, path)] if path.is_file() else list(_walk(path))
    if not any(source.is_file() for _, source in entries):
        raise InvalidSpec(f"{path} holds no files" if path.is_dir() else f"{path} does not exist")
    if len(entries) > MAX_ENTRIES:
        raise PayloadTooLarge(f"{path} holds {len(entries)} entries; at most {MAX_ENTRIES}")
    total = 0
    for name, source in entries:
        _check_name(name)
        status = source.lstat()
        total += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if total > max_bytes:
            raise PayloadTooLarge(
                f"{path} is larger than {max_bytes} bytes",
                suggestions=("put data on the nodes and name it as node:/absolute/path",),
            )
        _add(archive, name, source, status)


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and paths in the order of the names, folders before what is in them."""
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as listing:
                names = sorted(entry.name for entry in listing if entry.name not in EXCLUDED)
        except NotADirectoryError:
            raise InvalidSpec(f"{folder} is neither a file nor a folder") from None
        except OSError as error:
            raise InvalidSpec(f"{current}: {error.strerror}") from error
        inside = [current / name for name in names]
        for path in inside:
            yield path.relative_to(folder).as_posix(), path
        pending += [path for path in reversed(inside) if path.is_dir() and not path.is_symlink()]


def _add(archive: tarfile.TarFile, name: str, source: Path, status: os.stat_result) -> None:
    info = tarfile.TarInfo(name)  # owner 0, no owner's name, time 0
    if stat.S_ISDIR(status.st_mode):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
        return
    if not stat.S_ISREG(status.st_mode):
        raise InvalidSpec(f"{source} is a link or a special file; bundles hold plain files only")
    info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    try:
        with source.open("rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            archive.addfile(info, file)
    except OSError as error:  # tarfile raises it too when the file shrank meanwhile
        raise_if_full(error, source.parent)
        raise InvalidSpec(f"{source}: {error.strerror or error}") from error


def _extract_all(archive: tarfile.TarFile, folder: Path, max_bytes: int) -> None:
    seen: set[str] = set()
    total = 0
    for entries, info in enumerate(archive, start=1):
        total += info.size
        if entries > MAX_ENTRIES or total > max_bytes:
            raise PayloadTooLarge(f"the bundle is over {MAX_ENTRIES} entries or {max_bytes} bytes")
        name = info.name.rstrip("/") if info.isdir() else info.name
        _check_name(name)
        if not (info.isreg() or info.isdir()) or info.issparse() or info.size < 0:
            raise InvalidSpec(
                f"{name!r} is a link or a special file; bundles hold plain files only"
            )
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in seen:
            raise InvalidSpec(f"{name!r} is there twice, or differs only in case")
        seen.add(folded)
        _extract(archive, info, folder / name)


def _extract(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
    try:
        if info.isdir():
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            return
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = archive.extractfile(info)
        if content is None:
            raise InvalidSpec(f"{info.name!r} has no content")
        with content, path.open("xb") as file:
            _copy(content, file, info)
        path.chmod(0o755 if info.mode & stat.S_IXUSR else 0o644)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise InvalidSpec(f"{info.name!r} is both a file and a folder") from None


def _copy(content: IO[bytes], file: IO[bytes], info: tarfile.TarInfo) -> None:
    left = info.size
    while left:
        block = content.read(min(left, CHUNK_BYTES))
        if not block:
            raise InvalidSpec(f"the bundle ends inside {info.name!r}")
        file.write(block)
        left -= len(block)


def _check_name(name: str) -> None:
    parts = PurePosixPath(name).parts
    problem = ""
    if not name or name.startswith("/") or ".." in parts or "." in name.split("/"):
        problem = "leaves the folder"
    elif "\\" in name or (len(name) > 1 and name[1] == ":"):
        problem = "is a Windows path"
    elif any(ord(character) < 32 or character == "\x7f" for character in name):
        problem = "holds control characters"
    elif "//" in name or name.endswith("/"):
        problem = "has an empty part"
    elif len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        problem = "is too deep or too long"
    if problem:
        raise InvalidSpec(f"entry {name[:200]!r} {problem}")
