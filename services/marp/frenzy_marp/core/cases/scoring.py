"""Score predictions on measured runs: accuracy by group, by field, and of the verdicts."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.estimate import CaseEstimate, Range

MIN_GROUP = 8  # rows from which a group counts in the macro mean over large groups


@dataclass(frozen=True, slots=True)
class Scored:
    """One reading beside its prediction, GiB."""

    case: Case
    metric: word.Metric
    measured: float
    predicted: Range

    @property
    def error(self) -> float:
        """Return the relative error, positive where the prediction is above the reading."""
        return (self.predicted.expected - self.measured) / self.measured

    @property
    def accuracy(self) -> float:
        """Return max(0, 1 - relative error)."""
        return max(0.0, 1 - abs(self.error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Accuracy of a set of readings; ``above_high_by_group`` counts every group once."""

    n: int
    groups: int
    macro: float
    mean: float
    median: float
    p10: float
    within_5pct: float
    within_10pct: float
    above_high: float
    above_high_by_group: float
    median_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """How often "fits" and "oom" were right; every measured run fitted its card.

    ``unsafe`` are runs that ran out of memory, called "fits"; ``_high`` of high confidence.
    """

    oom: int
    oom_high: int
    fits: int
    balanced_accuracy: float | None
    unsafe: int
    unsafe_high: int
    false_refusals: int


@dataclass(frozen=True, slots=True)
class Report:
    """All scored readings of one mode, and its verdicts."""

    mode: str
    rows: tuple[Scored, ...]
    verdicts: Verdicts

    def by(self, field: Callable[[Scored], str]) -> dict[str, Accuracy]:
        """Return the accuracy by a field of the readings, largest first."""
        parts: dict[str, list[Scored]] = defaultdict(list)
        for row in self.rows:
            parts[field(row)].append(row)
        ordered = sorted(parts.items(), key=lambda part: -len(part[1]))
        return {name: accuracy(rows) for name, rows in ordered}


def score(mode: str, cases: Sequence[Case], estimates: Sequence[CaseEstimate]) -> Report:
    """Compare every reading of every case with its estimate."""
    rows: list[Scored] = []
    judged: list[tuple[Case, word.Outcome]] = []
    for case, estimate in zip(cases, estimates, strict=True):
        rows += [
            Scored(case, metric, measured, estimate.of(target(case, metric)))
            for metric, measured in case.readings
            if measured > 0
        ]
        if estimate.verdict is not None and (case.outcome or case.readings):
            judged.append((case, estimate.verdict))
    return Report(mode, tuple(rows), _verdicts(judged))


def accuracy(rows: Sequence[Scored]) -> Accuracy:
    """Summarise readings; ``macro`` is the mean of the means of their groups."""
    values = sorted(row.accuracy for row in rows)
    groups: dict[str, list[Scored]] = defaultdict(list)
    for row in rows:
        groups[row.case.label.group].append(row)
    widths = [
        (row.predicted.high - row.predicted.expected) / row.predicted.expected for row in rows
    ]
    return Accuracy(
        n=len(rows),
        groups=len(groups),
        macro=fmean(fmean(row.accuracy for row in part) for part in groups.values()),
        mean=fmean(values),
        median=median(values),
        p10=values[int(0.1 * (len(values) - 1))],
        within_5pct=fmean(abs(row.error) <= 0.05 for row in rows),
        within_10pct=fmean(abs(row.error) <= 0.10 for row in rows),
        above_high=_above_high(rows),
        above_high_by_group=fmean(_above_high(part) for part in groups.values()),
        median_width=median(widths),
    )


def large_groups(rows: Sequence[Scored]) -> tuple[Scored, ...]:
    """Return the readings of groups with enough of them to count in the macro mean."""
    sizes: dict[str, int] = defaultdict(int)
    for row in rows:
        sizes[row.case.label.group] += 1
    return tuple(row for row in rows if sizes[row.case.label.group] >= MIN_GROUP)


def target(case: Case, metric: word.Metric) -> word.Metric:
    """Return the metric to predict: for an unknown one what the source's code suggests.

    Where that is not settled either: reserved.
    """
    if metric is word.Metric.UNKNOWN:
        return case.metric_guess or word.Metric.RESERVED
    return metric


def _above_high(rows: Sequence[Scored]) -> float:
    return fmean(row.measured > row.predicted.high for row in rows)


def _verdicts(judged: Sequence[tuple[Case, word.Outcome]]) -> Verdicts:
    oom = [(case, said) for case, said in judged if case.outcome is word.Outcome.OOM]
    fits = [said for case, said in judged if case.outcome is not word.Outcome.OOM]
    unsafe = [case for case, said in oom if said is word.Outcome.FITS]
    refused = sum(said is word.Outcome.OOM for said in fits)
    rates = [1 - len(unsafe) / len(oom)] if oom else []
    rates += [1 - refused / len(fits)] if fits else []
    return Verdicts(
        oom=len(oom),
        oom_high=_high(case for case, _ in oom),
        fits=len(fits),
        balanced_accuracy=fmean(rates) if rates else None,
        unsafe=len(unsafe),
        unsafe_high=_high(unsafe),
        false_refusals=refused,
    )


def _high(cases: Iterable[Case]) -> int:
    return sum(case.label.confidence is word.Confidence.HIGH for case in cases)
