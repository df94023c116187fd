"""Score predictions on measured runs: accuracy by group, by field, and of the verdicts."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case, Run
from frenzy_marp.core.cases.corrections import (
    NO_CORRECTION,
    Correction,
    Residual,
    correction_keys,
    fit,
)
from frenzy_marp.core.cases.estimate import CaseEstimate, Range, estimate_run
from frenzy_marp.core.cases.overhead import GIB
from frenzy_marp.core.cases.published import published_bytes

MIN_GROUP = 8  # rows from which a group counts in the macro mean over large groups


class Mode(StrEnum):
    """Who predicts."""

    FRENZY_2024 = "frenzy-2024"
    ANALYTICAL = "analytical"
    CORRECTED = "corrected"


@dataclass(frozen=True, slots=True)
class Scored:
    """One reading beside its prediction, GiB."""

    case: Case
    metric: word.Metric
    measured: float
    predicted: Range

    @property
    def accuracy(self) -> float:
        """Return max(0, 1 - relative error)."""
        return max(0.0, 1 - abs(self.predicted.expected - self.measured) / self.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Accuracy of a set of readings."""

    n: int
    groups: int
    macro: float
    mean: float
    median: float
    p10: float
    within_5pct: float
    within_10pct: float
    above_high: float
    median_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """How often "fits" and "oom" were right; every measured run fitted its card."""

    oom: int
    fits: int
    balanced_accuracy: float
    unsafe: int  # known OOM called "fits"
    false_refusals: int


@dataclass(frozen=True, slots=True)
class Report:
    """All scored readings of one mode, and its verdicts."""

    mode: Mode
    rows: tuple[Scored, ...]
    verdicts: Verdicts

    def by(self, field: Callable[[Scored], str]) -> dict[str, Accuracy]:
        """Return the accuracy by a field of the readings, largest first."""
        parts: dict[str, list[Scored]] = defaultdict(list)
        for row in self.rows:
            parts[field(row)].append(row)
        ordered = sorted(parts.items(), key=lambda part: -len(part[1]))
        return {name: accuracy(rows) for name, rows in ordered}


def score(cases: Sequence[Case], mode: Mode = Mode.ANALYTICAL) -> Report:
    """Predict every reading of every case, and compare.

    ``corrected`` predicts each group with what the other groups taught (leave one group out).
    """
    rows: list[Scored] = []
    outcomes: list[tuple[word.Outcome, word.Outcome]] = []
    for case, estimate in zip(cases, estimates(cases, mode), strict=True):
        rows += [
            Scored(case, metric, measured, estimate.of(_target(case, metric)))
            for metric, measured in case.readings
            if measured > 0
        ]
        if estimate.verdict is not None and (case.outcome or case.readings):
            outcomes.append((case.outcome or word.Outcome.FITS, estimate.verdict))
    return Report(mode, tuple(rows), _verdicts(outcomes))


def estimates(cases: Sequence[Case], mode: Mode) -> tuple[CaseEstimate, ...]:
    """Predict every case."""
    if mode is Mode.FRENZY_2024:
        return tuple(_published(case.run) for case in cases)
    known = _corrections(cases) if mode is Mode.CORRECTED else {}
    return tuple(
        estimate_run(case.run, known.get(case.label.group, NO_CORRECTION)) for case in cases
    )


def accuracy(rows: Sequence[Scored]) -> Accuracy:
    """Summarise readings; ``macro`` is the mean of the means of their groups."""
    values = sorted(row.accuracy for row in rows)
    errors = [abs(row.predicted.expected - row.measured) / row.measured for row in rows]
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.case.label.group].append(row.accuracy)
    widths = [
        (row.predicted.high - row.predicted.expected) / row.predicted.expected for row in rows
    ]
    return Accuracy(
        n=len(rows),
        groups=len(groups),
        macro=fmean(fmean(part) for part in groups.values()),
        mean=fmean(values),
        median=median(values),
        p10=values[int(0.1 * (len(values) - 1))],
        within_5pct=fmean(error <= 0.05 for error in errors),
        within_10pct=fmean(error <= 0.10 for error in errors),
        above_high=fmean(row.measured > row.predicted.high for row in rows),
        median_width=median(widths),
    )


def large_groups(rows: Sequence[Scored]) -> tuple[Scored, ...]:
    """Return the readings of groups with enough of them to count in the macro mean."""
    sizes: dict[str, int] = defaultdict(int)
    for row in rows:
        sizes[row.case.label.group] += 1
    return tuple(row for row in rows if sizes[row.case.label.group] >= MIN_GROUP)


def _target(case: Case, metric: word.Metric) -> word.Metric:
    """Return the metric to predict: for an unknown one, what the source's code suggests."""
    if metric is word.Metric.UNKNOWN:
        return case.metric_guess or word.Metric.RESERVED
    return metric


def _corrections(cases: Sequence[Case]) -> dict[str, Correction]:
    residuals = [residual for case in cases for residual in _residuals(case)]
    groups = {case.label.group for case in cases}
    return {
        group: fit(residual for residual in residuals if residual.group != group)
        for group in groups
    }


def _residuals(case: Case) -> list[Residual]:
    estimate = estimate_run(case.run)
    found: list[Residual] = []
    for metric, measured in case.readings:
        learned = {word.Metric.ACTIVE: word.Metric.ALLOCATED}.get(metric, metric)
        if learned is word.Metric.UNKNOWN or measured <= 0 or case.run.training.load_time_peak:
            continue
        ratio = math.log(measured / estimate.of(metric).expected)
        found.append(Residual(learned, correction_keys(case.run), case.label.group, ratio))
    return found


def _published(run: Run) -> CaseEstimate:
    value = published_bytes(run) / GIB
    exact = Range(value, value, value)
    capacity = run.card.capacity_gib
    verdict = None
    if capacity is not None:
        verdict = word.Outcome.FITS if value <= capacity else word.Outcome.OOM
    return CaseEstimate(exact, exact, exact, exact, "sum", (), verdict, None)


def _verdicts(outcomes: Sequence[tuple[word.Outcome, word.Outcome]]) -> Verdicts:
    oom = [said for truth, said in outcomes if truth is word.Outcome.OOM]
    fits = [said for truth, said in outcomes if truth is word.Outcome.FITS]
    unsafe = sum(said is word.Outcome.FITS for said in oom)
    refused = sum(said is word.Outcome.OOM for said in fits)
    rates = [1 - unsafe / len(oom)] if oom else []
    rates += [1 - refused / len(fits)] if fits else []
    return Verdicts(
        oom=len(oom),
        fits=len(fits),
        balanced_accuracy=fmean(rates) if rates else math.nan,
        unsafe=unsafe,
        false_refusals=refused,
    )
