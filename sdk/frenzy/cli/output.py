"""Write data to stdout and messages to stderr, for people and for programs alike."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


class PipeConsole(Console):
    """A console that is no terminal: lines without the blanks that fill a table's last column."""

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own
        """Print without trailing blanks."""
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))
        self.file.flush()


def out(*, pipe_width: int = _UNLIMITED) -> Console:
    """Return the console of data; ``pipe_width`` is the columns where there is no terminal."""
    return _console(stderr=False, pipe_width=pipe_width)


def err(*, pipe_width: int = _UNLIMITED) -> Console:
    """Return the console of messages."""
    return _console(stderr=True, pipe_width=pipe_width)


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
    return rows_table(list(columns), zip(*columns.values(), strict=True))


def rows_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Build a plain table from its rows; titles may repeat."""
    result = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title in titles:
        result.add_column(title.upper(), overflow="fold")
    for cells in rows:
        result.add_row(*(_cell(cell) for cell in cells))
    return result


def fields(values: Mapping[str, object]) -> Table:
    """Build a table of one thing: a field a line."""
    result = Table.grid(padding=(0, 2))
    for name, value in values.items():
        result.add_row(name, _cell(value))
    return result


class Narrator:
    """Prints each step of something once."""

    def __init__(self, console: Console, indent: str = "") -> None:
        self._console = console
        self._indent = indent
        self._last = ""

    def __call__(self, step: str) -> None:
        """Print a step unless it was the last one too."""
        if step and step != self._last:
            self._last = step
            self._console.print(Text(f"{self._indent}{step}", style="dim"))


@contextmanager
def steps(title: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Tell steps on stderr: with a spinner in a terminal, else a line each; not when ``quiet``."""
    console = err()
    if quiet:
        yield lambda _: None
    elif console.is_terminal:
        with console.status(title) as spinner:
            yield spinner.update
    else:
        yield Narrator(console)


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    return Text("-" if value is None or value == "" else printable(str(value)))


def printable(text: str) -> str:
    """Drop control characters: a job's name must not move the reader's cursor."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _console(*, stderr: bool, pipe_width: int) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    plain = bool(os.environ.get("NO_COLOR"))
    if stream.isatty():
        return Console(file=stream, highlight=False, no_color=plain)
    return PipeConsole(file=stream, highlight=False, no_color=plain, width=pipe_width)
