"""Cases from JSON lines: one at a time, bounded, and a refused row does not stop the others."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case, parse_case
from frenzy_marp.core.cases.checks import check_run
from frenzy_marp.core.cases.reading import CaseError

LONGEST_LINE: Final = 2**20  # bytes; a row of every field has 3 KiB
MOST_LINES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that no estimate is made for, and why. Its readings count as missed entirely."""

    id: str
    reason: str
    readings: tuple[tuple[word.Metric, float], ...]


def read_cases(lines: Iterable[bytes]) -> Iterator[Case | Refused]:
    """Read JSON lines; empty ones are skipped.

    Raises:
        CaseError: a line is no JSON object, or too long; with its number.
    """
    for number, line in enumerate(lines, start=1):
        if number > MOST_LINES:
            raise CaseError(f"more than {MOST_LINES} lines: split the file")
        if not line.strip():
            continue
        try:
            yield read_case(_json_object(line), default_id=f"line {number}")
        except CaseError as error:
            raise CaseError(f"line {number}: {error}") from error


def read_case(value: Mapping[str, object], default_id: str = "") -> Case | Refused:
    """Return the case, or why there is none."""
    try:
        case = parse_case(value, default_id)
        check_run(case.run)
    except CaseError as error:
        return Refused(_id(value, default_id), error.message, _readings(value))
    return case


def _json_object(line: bytes) -> dict[str, object]:
    if len(line) > LONGEST_LINE:
        raise CaseError(f"longer than {LONGEST_LINE} bytes: one JSON object a line is needed")
    try:
        value: object = json.loads(line)
    except RecursionError:
        raise CaseError("nested too deeply") from None
    except ValueError as error:  # of the text, or of its encoding
        raise CaseError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CaseError(f"an object is needed, not {value!r:.60}")
    return cast("dict[str, object]", value)


def _id(value: Mapping[str, object], default_id: str) -> str:
    found = value.get("id")
    return found[:100] if isinstance(found, str) and found else default_id


def _readings(value: Mapping[str, object]) -> tuple[tuple[word.Metric, float], ...]:
    """Return what can be read of a refused row's readings."""
    found = value.get("readings")
    names = {metric.value: metric for metric in word.Metric}
    if not isinstance(found, Mapping):
        return ()
    return tuple(
        (names[name], float(size))
        for name, size in cast("Mapping[str, object]", found).items()
        if name in names and isinstance(size, int | float) and 0 < size < 1e15
    )
