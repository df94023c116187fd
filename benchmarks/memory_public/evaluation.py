"""Every mode on the same rows; what is learned never saw the rows that it is scored on."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.censored import outcomes
from frenzy_marp.core.cases.corrections import Correction
from frenzy_marp.core.cases.estimate import CaseEstimate, estimate_run
from frenzy_marp.core.cases.fitting import fit, left_out, residuals
from frenzy_marp.core.cases.modes import Mode, predict
from frenzy_marp.core.cases.scoring import Report, Scored, accuracy, score

KNOWN_SOURCES = "learned, known sources"
_FOLDS = 5

FIELDS: dict[str, Callable[[Scored], str]] = {
    "group": lambda row: row.case.label.group,
    "framework": lambda row: row.case.run.training.framework.value,
    "family": lambda row: row.case.run.model.family.value,
    "method": lambda row: row.case.run.training.method.value,
    "size": lambda row: size_class(row.case.run.model.num_parameters),
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The reports of all modes, and the accuracy of the cross-validated ones by field."""

    reports: tuple[Report, ...]

    def report(self, mode: str) -> Report:
        """Return one mode's report."""
        return next(report for report in self.reports if report.mode == mode)

    @property
    def breakdown(self) -> dict[str, Any]:
        """Return accuracy by mode, metric and field, with and without unexplained rows."""
        return {report.mode: _breakdown(report) for report in self.reports}


def evaluate(cases: Sequence[Case]) -> Evaluation:
    """Score every mode on rows that taught it nothing.

    Errors and shifts come from other groups; in ``KNOWN_SOURCES`` from four fifths of all rows, so
    that a row's source is known from its other rows: what one's own finished runs bring.
    """
    errors, shifts = left_out(cases, shifted=False), left_out(cases)
    predictions: dict[str, list[CaseEstimate]] = {
        Mode.FRENZY_2024.value: [predict(case.run, Mode.FRENZY_2024) for case in cases],
        Mode.ANALYTICAL.value: [estimate_run(c.run, errors[c.label.group]) for c in cases],
        Mode.LEARNED.value: [estimate_run(c.run, shifts[c.label.group]) for c in cases],
        KNOWN_SOURCES: _by_folds(cases),
    }
    return Evaluation(tuple(score(mode, cases, made) for mode, made in predictions.items()))


def _by_folds(cases: Sequence[Case]) -> list[CaseEstimate]:
    known: list[Correction] = []
    for fold in range(_FOLDS):
        kept = [case for place, case in enumerate(cases) if place % _FOLDS != fold]
        known.append(fit(residuals(kept), outcomes(kept)))
    return [estimate_run(case.run, known[place % _FOLDS]) for place, case in enumerate(cases)]


def size_class(parameters: int) -> str:
    """Return the class of a model's size."""
    billions = parameters / 1e9
    for limit in (1, 3, 10, 30, 100):
        if billions < limit:
            return f"under {limit}B"
    return "100B and more"


def _breakdown(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in word.Metric:
        rows = [row for row in report.rows if row.metric is metric]
        if not rows:
            continue
        explained = [row for row in rows if not row.case.label.unexplained]
        found[metric.value] = {
            "all": _rounded(rows),
            "without_unexplained": _rounded(explained),
            **{name: _by(rows, field) for name, field in FIELDS.items()},
        }
    return found


def _by(rows: Sequence[Scored], field: Callable[[Scored], str]) -> dict[str, Any]:
    return {
        value: _rounded([row for row in rows if field(row) == value])
        for value in sorted({field(row) for row in rows})
    }


def _rounded(rows: Sequence[Scored]) -> dict[str, Any]:
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in asdict(accuracy(rows)).items()
    }
