"""Predictions and scores of a cases file as one JSON document."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.estimate import CaseEstimate, Range
from frenzy_marp.core.cases.lines import Refused
from frenzy_marp.core.cases.modes import Mode, predict
from frenzy_marp.core.cases.scoring import (
    MIN_GROUP,
    Report,
    Scored,
    accuracy,
    large_groups,
    score,
    target,
)

Document = dict[str, Any]

_DIGITS = 4


def document(entries: Iterable[Case | Refused], mode: Mode) -> Document:
    """Return every row's prediction, and the summary by metric of rows that were measured."""
    rows: list[Document] = []
    cases: list[Case] = []
    estimates: list[CaseEstimate] = []
    refused: list[Refused] = []
    for entry in entries:
        if isinstance(entry, Refused):
            refused.append(entry)
            rows.append({"id": entry.id, "unsupported": entry.reason})
            continue
        estimate = predict(entry.run, mode)
        cases.append(entry)
        estimates.append(estimate)
        rows.append(_row(entry, estimate))
    report = score(mode.value, cases, estimates)
    return {"mode": mode.value, "cases": rows, "summary": summary(report, refused)}


def summary(report: Report, refused: Sequence[Refused] = ()) -> Document:
    """Return accuracy by metric and by physical field, and of the verdicts.

    ``unsupported`` readings count as accuracy 0 in the means of their metric.
    """
    metrics: Document = {}
    for metric in word.Metric:
        rows = [row for row in report.rows if row.metric is metric]
        missed = sum(metric in dict(entry.readings) for entry in refused)
        if rows or missed:
            metrics[metric.value] = _metric(rows, missed)
    return {
        "rows_unsupported": len(refused),
        "metrics": metrics,
        "framework": _by(report, lambda row: row.case.run.training.framework.value),
        "family": _by(report, lambda row: row.case.run.model.family.value),
        "method": _by(report, lambda row: row.case.run.training.method.value),
        "verdicts": _rounded(asdict(report.verdicts)),
    }


def _metric(rows: Sequence[Scored], missed: int) -> Document:
    if not rows:
        return {"n": missed, "unsupported": missed, "mean": 0.0, "macro": 0.0}
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(row.case.label.group, []).append(row)
    large = large_groups(rows)
    high = [row for row in rows if row.case.label.confidence is word.Confidence.HIGH]
    explained = [row for row in rows if not row.case.label.unexplained]
    found = asdict(accuracy(rows))
    share = len(rows) / (len(rows) + missed)
    for name in ("macro", "mean", "within_5pct", "within_10pct"):
        found[name] *= share
    return {
        **_rounded(found),
        "n": len(rows) + missed,
        "unsupported": missed,
        f"macro_groups_of_{MIN_GROUP}": round(accuracy(large).macro, _DIGITS) if large else None,
        "high_confidence": _rounded(asdict(accuracy(high))) if high else None,
        "without_unexplained": _rounded(asdict(accuracy(explained))) if explained else None,
        "groups_by_name": {
            name: _rounded(asdict(accuracy(part))) for name, part in sorted(groups.items())
        },
    }


def _by(report: Report, field: Callable[[Scored], str]) -> Document:
    return {name: _rounded(asdict(found)) for name, found in report.by(field).items()}


def _row(case: Case, estimate: CaseEstimate) -> Document:
    metric = target(case, case.metric or word.Metric.ALLOCATED)
    return {
        "id": case.label.id,
        "predicted_gib": round(estimate.of(metric).expected, _DIGITS),
        "by_metric": {
            "allocated": _range(estimate.allocated),
            "reserved": _range(estimate.reserved),
            "device": _range(estimate.device),
            "required": _range(estimate.required),
        },
        "moment": estimate.moment,
        "terms_gib": {name: round(size, _DIGITS) for name, size in estimate.terms_gib},
        "verdict": estimate.verdict.value if estimate.verdict else None,
        "p_oom": None if estimate.p_oom is None else round(estimate.p_oom, _DIGITS),
    }


def _range(value: Range) -> Document:
    return _rounded(asdict(value))


def _rounded(values: dict[str, Any]) -> Document:
    return {
        name: round(value, _DIGITS) if isinstance(value, float) else value
        for name, value in values.items()
    }
