"""Copy a store's append-only files while its server writes them.

The manifest names a base, which never changes, and files to which the server appends; what it no
longer needs it unlinks. Whoever has all of them open has one moment of the store, however long
the copying takes. At worst it ends with half a write, which nobody was promised and which a server
cuts off when it reads the copy.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from frenzy_shared.errors import InvalidState, Misconfigured
from frenzy_shared.files import sync_folder

FOLDER: Final = "appendonlydir"
_MANIFEST: Final = "*.manifest"
_TRIES: Final = 100  # each lost to a rewrite that ended in this very moment
_CHUNK: Final = 1 << 20
_HISTORY: Final = "h"  # in a manifest: a file that is no longer part of the store


def copy(source: Path, target: Path) -> dict[str, str]:
    """Copy the store in ``source`` to the new folder ``target``; return each file's SHA-256.

    Raises:
        InvalidState: there is no store.
        Misconfigured: its manifest cannot be understood.
    """
    for _ in range(_TRIES):
        manifest = _manifest(source)
        lines = _parts(manifest)
        with ExitStack() as stack:
            try:
                files = {
                    name: stack.enter_context((source / name).open("rb"))
                    for name in (line.split()[1] for line in lines)
                }
            except FileNotFoundError:
                continue
            target.mkdir(mode=0o700)
            found = {name: _write(target / name, file) for name, file in files.items()}
            text = "".join(f"{line}\n" for line in lines)
            (target / manifest.name).write_text(text, encoding="utf-8")
            found[manifest.name] = hashlib.sha256(text.encode()).hexdigest()
        sync_folder(target)
        return found
    raise Misconfigured(
        f"{source} does not hold still: its manifest names files that are not there"
    )


def check(folder: Path, sums: Mapping[str, str]) -> None:
    """Compare a copied store with what ``copy`` returned.

    Raises:
        Misconfigured: naming the file that is missing or differs.
    """
    for name, expected in sums.items():
        try:
            with (folder / name).open("rb") as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Misconfigured(f"{folder / name}: {error.strerror}") from None
        if actual != expected:
            raise Misconfigured(
                f"{folder / name} is not what was backed up: it was changed or damaged"
            )


def _manifest(source: Path) -> Path:
    found = sorted(source.glob(_MANIFEST))
    if len(found) != 1:
        raise InvalidState(
            f"there is no store in {source}",
            suggestions=("the folder of a Valkey server's data has an appendonlydir",),
        )
    return found[0]


def _parts(manifest: Path) -> list[str]:
    """Return a manifest's lines, ``file <name> seq <n> type <b|i|h>``, of what the store is."""
    lines = manifest.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    if not all(len(line) == 6 and line[::2] == ["file", "seq", "type"] for line in words):
        raise Misconfigured(f"{manifest} is not a manifest that Frenzy understands")
    return [line for line, word in zip(lines, words, strict=True) if word[5] != _HISTORY]


def _write(path: Path, source: BinaryIO) -> str:
    """Write what a file holds now; return its SHA-256."""
    hashed, left = hashlib.sha256(), os.fstat(source.fileno()).st_size
    with path.open("xb") as file:
        while left and (chunk := source.read(min(left, _CHUNK))):
            file.write(chunk)
            hashed.update(chunk)
            left -= len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return hashed.hexdigest()
