"""Fold a rank's report lines into what is known about the rank, and what is new to tell."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from frenzy_orchestrator.core.exits import RankReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step, as a rank reported it."""

    step: int
    time_ms: int
    loss: float | None
    learning_rate: float | None
    tokens_per_second: float | None
    step_seconds: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that is complete on disk."""

    step: int


def parse(line: bytes) -> Mapping[str, Any] | None:
    """Return a report line's object; ``None`` for anything else.

    The file belongs to user code: whatever it holds, the agent must not fail on it.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def fold(  # noqa: PLR0911 - one return per kind of line
    report: RankReport, entry: Mapping[str, Any]
) -> tuple[RankReport, Step | Checkpoint | None]:
    """Return the updated report and what to tell, if anything; unknown kinds change nothing."""
    match entry.get("kind"):
        case "step":
            return _fold_step(report, entry)
        case "warm":
            return replace(report, warm=True), None
        case "checkpoint":
            step = _whole(entry.get("step"))
            return report, Checkpoint(step) if step is not None else None
        case "failure":
            if report.failure_reason:
                return report, None  # the first failure is the cause
            return replace(
                report,
                failure_reason=str(entry.get("reason", ""))[:64],
                failure_message=str(entry.get("message", ""))[:4000],
            ), None
        case "summary":
            return _fold_summary(report, entry), None
        case _:
            return report, None


def _fold_step(report: RankReport, entry: Mapping[str, Any]) -> tuple[RankReport, Step | None]:
    number = _whole(entry.get("step"))
    if number is None:
        return report, None
    step = Step(
        step=number,
        time_ms=_whole(entry.get("time_ms")) or 0,
        loss=_number(entry.get("loss")),
        learning_rate=_number(entry.get("learning_rate")),
        tokens_per_second=_number(entry.get("tokens_per_second")),
        step_seconds=_number(entry.get("step_seconds")),
        peak_allocated_bytes=_whole(entry.get("peak_allocated_bytes")),
        peak_reserved_bytes=_whole(entry.get("peak_reserved_bytes")),
    )
    return replace(
        report,
        last_step=number,
        loss_first=step.loss if report.loss_first is None else report.loss_first,
        loss_last=step.loss if step.loss is not None else report.loss_last,
        tokens_per_second=step.tokens_per_second or report.tokens_per_second,
        peak_allocated_bytes=_highest(report.peak_allocated_bytes, step.peak_allocated_bytes),
        peak_reserved_bytes=_highest(report.peak_reserved_bytes, step.peak_reserved_bytes),
    ), step


def _fold_summary(report: RankReport, entry: Mapping[str, Any]) -> RankReport:
    def either(new: float | None, old: float | None) -> float | None:
        return old if new is None else new

    step = _whole(entry.get("last_step"))
    return replace(
        report,
        peak_allocated_bytes=_highest(
            report.peak_allocated_bytes, _whole(entry.get("peak_allocated_bytes"))
        ),
        peak_reserved_bytes=_highest(
            report.peak_reserved_bytes, _whole(entry.get("peak_reserved_bytes"))
        ),
        loss_first=either(_number(entry.get("loss_first")), report.loss_first),
        loss_last=either(_number(entry.get("loss_last")), report.loss_last),
        tokens_per_second=either(_number(entry.get("tokens_per_second")), report.tokens_per_second),
        last_step=report.last_step if step is None else step,
    )


def _number(value: object) -> float | None:
    """Return a finite number, ``None`` for anything else (NaN losses travel as absent)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 2**63 else None


def _highest(old: int | None, new: int | None) -> int | None:
    return max((value for value in (old, new) if value is not None), default=None)
