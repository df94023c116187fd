"""Lines of logs: filter, order, tell gaps and repeats, make them safe to show. Pure."""

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from frenzy_shared.messages.v1 import LogBatch, LogLine

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL: Final = {code: None for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which lines are wanted; None is all."""

    attempt: int | None = None
    rank: int | None = None

    def takes(self, batch: LogBatch) -> bool:
        """Tell whether a batch's lines are wanted."""
        return self.attempt in (None, batch.attempt) and self.rank in (None, batch.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of one rank of one attempt."""

    attempt: int
    rank: int
    line: LogLine

    @property
    def source(self) -> tuple[int, int]:
        """Return who wrote it: (attempt, rank)."""
        return self.attempt, self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Lines that are missing: ``first`` to ``last``, both included."""

    attempt: int
    rank: int
    first: int
    last: int


def lines_of(batch: LogBatch) -> Iterator[Line]:
    """Return a batch's lines."""
    for line in batch.lines:
        yield Line(attempt=batch.attempt, rank=batch.rank, line=line)


def clean(text: str) -> str:
    """Remove terminal sequences and control characters other than newline and tab."""
    return _ANSI.sub("", text).translate(_CONTROL)


@dataclass(slots=True)
class LineTracker:
    """Follows each rank's numbers in a live stream.

    ``complete`` says that the stream is seen from its start, so that a rank's first number must
    be 1; otherwise (resumed, or only a tail) a rank's first line sets where it is.
    """

    complete: bool
    _next: dict[tuple[int, int], int] = field(default_factory=dict)

    def accept(self, line: Line) -> tuple[bool, Gap | None]:
        """Tell whether a line is new, and what is missing before it."""
        number = line.line.number
        expected = self._next.get(line.source, 1 if self.complete else number)
        if number < expected:
            return False, None
        self._next[line.source] = number + 1
        return True, _gap(line.source, expected, number)


@dataclass(slots=True)
class LineTable:
    """Collects stored lines for one answer: each once, ordered, optionally only the last ones.

    ``size_bytes`` is what the kept lines take; the caller bounds it.
    """

    tail: int | None
    size_bytes: int = 0
    _lines: dict[tuple[int, int], dict[int, Line]] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Keep a line unless it is already here."""
        numbers = self._lines.setdefault(line.source, {})
        if line.line.number not in numbers:
            numbers[line.line.number] = line
            self.size_bytes += _size(line)
        if self.tail is not None and len(numbers) > 2 * self.tail + 64:
            self._shrink(line.source, self.tail)

    @property
    def attempts(self) -> int:
        """Return how many attempts wrote lines."""
        return len({attempt for attempt, _ in self._lines})

    def merged(self) -> Iterator[Line | Gap]:
        """Yield all ranks' lines by time, each rank's in the order of its numbers."""
        ranks = [self._rank(source) for source in sorted(self._lines)]
        for _, _, item in heapq.merge(*ranks, key=lambda entry: entry[:2]):
            yield item

    def _rank(self, source: tuple[int, int]) -> Iterator[tuple[int, int, Line | Gap]]:
        """Yield a rank's lines with a time that never goes back, so that merging keeps them."""
        if self.tail is not None:
            self._shrink(source, self.tail)
        attempt, _ = source
        expected, time_ms = (1 if self.tail is None else None), 0
        for number, line in sorted(self._lines[source].items()):
            time_ms = max(time_ms, line.line.time_ms)
            gap = _gap(source, expected or number, number)
            if gap is not None:
                yield attempt, time_ms, gap
            yield attempt, time_ms, line
            expected = number + 1

    def _shrink(self, source: tuple[int, int], keep: int) -> None:
        numbers = self._lines[source]
        for number in sorted(numbers)[: max(0, len(numbers) - keep)]:
            self.size_bytes -= _size(numbers.pop(number))


def render(
    items: Iterable[Line | Gap], *, name_ranks: bool, name_attempts: bool = False
) -> Iterator[str]:
    """Yield lines of text; ``name_ranks`` puts ``[<rank>] `` before each.

    With ``name_attempts`` too, that is ``[<attempt>.<rank>] ``.
    """
    for item in items:
        source = f"{item.attempt}.{item.rank}" if name_attempts else f"{item.rank}"
        prefix = f"[{source}] " if name_ranks else ""
        if isinstance(item, Gap):
            yield f"{prefix}[lines {item.first}-{item.last} are missing]\n"
        else:
            yield f"{prefix}{clean(item.line.text)}\n"


def _gap(source: tuple[int, int], expected: int, number: int) -> Gap | None:
    if number <= expected:
        return None
    attempt, rank = source
    return Gap(attempt=attempt, rank=rank, first=expected, last=number - 1)


def _size(line: Line) -> int:
    return len(line.line.text) + 64
