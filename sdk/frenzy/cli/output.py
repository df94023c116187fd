"""Write data to stdout and messages to stderr, for people and for programs alike."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from frenzy.cli.options import Format
from frenzy_shared.messages.base import Wire

Row = TypeVar("Row", bound=Wire)
Columns = Mapping[str, Callable[[Row], object]]

_UNLIMITED: Final = 10_000  # columns: a table in a pipe is never cut


def out() -> Console:
    """Return the console of data."""
    return _console(stderr=False)


def err() -> Console:
    """Return the console of messages."""
    return _console(stderr=True)


def interactive() -> bool:
    """Tell whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def write_list(
    rows: Sequence[Row],
    output: Format,
    columns: Columns[Row],
    *,
    wide: Columns[Row] | None = None,
    name: Callable[[Row], str],
) -> None:
    """Write rows in the asked format."""
    if output is Format.NAME:
        sys.stdout.writelines(f"{name(row)}\n" for row in rows)
    elif output in (Format.JSON, Format.YAML):
        write_data([as_json(row) for row in rows], output)
    else:
        shown = {**columns, **(wide or {})} if output is Format.WIDE else columns
        out().print(table({title: [get(row) for row in rows] for title, get in shown.items()}))


def write_data(data: object, output: Format) -> None:
    """Write JSON-ready data as JSON or YAML."""
    if output is Format.YAML:
        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def as_json(value: Wire) -> dict[str, Any]:
    """Return a message as JSON-ready data; absent values are left out."""
    return value.model_dump(mode="json", exclude_none=True)


def table(columns: Mapping[str, Sequence[object]]) -> Table:
    """Build a plain table; texts from the server are shown as they are, never as markup."""
    result = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title in columns:
        result.add_column(title.upper(), overflow="fold")
    for cells in zip(*columns.values(), strict=True):
        result.add_row(*(_cell(cell) for cell in cells))
    return result


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    return Text("-" if value is None or value == "" else printable(str(value)))


def printable(text: str) -> str:
    """Drop control characters: a job's name must not move the reader's cursor."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _UNLIMITED
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(file=stream, highlight=False, width=width, no_color=plain, soft_wrap=False)
