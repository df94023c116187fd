"""A rank's report file: one JSON object per line, which the node agent tails.

A line is written with one ``write`` and flushed, so a reader never waits for half of it and a
killed rank loses nothing that it reported.
"""

import json
import math
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from frenzy_shared.domain.job import StopReason

_MESSAGE_LIMIT = 4000
_NUMBERS = ("step", "loss", "tokens_per_second")  # what is summed up


class ReportFile:
    """Append the reports of one rank to ``path``."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def step(self, step: int, **values: float | None) -> None:
        """Report one optimizer step; ``values`` are the numbers known about it."""
        self._append({"kind": "step", "step": step, "time_ms": _now_ms(), **values})

    def warm(self) -> None:
        """Report that this rank is ready and waits for its release."""
        self._append({"kind": "warm"})

    def checkpoint(self, step: int) -> None:
        """Report that the checkpoint of ``step`` is complete on disk."""
        self._append({"kind": "checkpoint", "step": step})

    def failure(self, reason: StopReason, message: str) -> None:
        """Report why this rank is about to exit with an error."""
        self._append({"kind": "failure", "reason": reason, "message": message[:_MESSAGE_LIMIT]})

    def summary(self, **values: float | str | None) -> None:
        """Report the whole run in one line, the last one."""
        self._append({"kind": "summary", **values})

    def _append(self, record: dict[str, Any]) -> None:
        known = {key: value for key, value in record.items() if _is_known(value)}
        line = json.dumps(known, separators=(",", ":"), allow_nan=False) + "\n"
        os.write(self._fd, line.encode())


def read_steps(path: Path) -> list[dict[str, Any]]:
    """Return the step reports of a report file, in the order they were written.

    The user's code can write to the file too: lines that are no step reports are left out.
    """
    lines = path.read_bytes().split(b"\n")
    return [record for line in lines if (record := _parse_step(line)) is not None]


def _parse_step(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("kind") != "step":
        return None
    numbers = [record[key] for key in _NUMBERS if key in record]
    is_step = isinstance(record.get("step"), int) and all(_is_number(value) for value in numbers)
    return record if is_step else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _is_known(value: object) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
