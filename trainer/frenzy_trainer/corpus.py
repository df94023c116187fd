"""Read the documents of a job: a text file, a .jsonl file, or a folder of them."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from frenzy_trainer.errors import DataError


def read_documents(root: Path) -> Iterator[str]:
    """Yield every document under ``root``: a text file is one, a .jsonl file has one per line.

    Folders are read recursively in the order of their relative paths; hidden names and
    ``__pycache__`` are left out. Empty files are skipped, unless nothing else is there.

    Raises:
        DataError: naming the file and the remedy.
    """
    found = False
    for file in _files(root):
        text = _read(file)
        documents = _json_lines(file, text) if file.suffix == ".jsonl" else iter([text])
        for document in documents:
            if document:
                found = True
                yield document
    if not found:
        raise DataError(
            f"data {root}: is empty", suggestions=["give a file or a folder that holds text"]
        )


def _files(root: Path) -> list[Path]:
    if not _is(Path.exists, root):
        raise DataError(
            f"data {root}: does not exist on this node",
            suggestions=["give a path that exists, on every node if it starts with node:"],
        )
    return sorted(_walk(root)) if _is(Path.is_dir, root) else [root]


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root, onerror=_refuse_folder):
        folders[:] = [name for name in folders if _wanted(name)]
        files = (Path(folder, name) for name in names if _wanted(name))
        yield from (file for file in files if _is(Path.is_file, file))


def _wanted(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def _is(question: Callable[[Path], bool], path: Path) -> bool:
    try:
        return question(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _refuse_folder(error: OSError) -> NoReturn:
    raise _unreadable(Path(error.filename), error) from error


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise _unreadable(file, error) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"data {file}: is not UTF-8 text (byte {error.start})",
            suggestions=["convert it, for example with iconv -t UTF-8, or leave it out"],
        ) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"data {path}: cannot be read: {error.strerror}",
        suggestions=["make it readable for the user that runs the node agent"],
    )


def _json_lines(file: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError):
            document = None
        if not isinstance(document, str):
            raise DataError(
                f'data {file}, line {number}: is not a JSON object with a "text" string',
                suggestions=['write one {"text": "..."} object per line'],
            )
        yield document
