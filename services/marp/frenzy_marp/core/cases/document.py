"""Predictions and scores of a cases file as one JSON document."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.estimate import CaseEstimate, Range
from frenzy_marp.core.cases.scoring import (
    MIN_GROUP,
    Mode,
    Report,
    Scored,
    accuracy,
    estimates,
    large_groups,
    score,
)

Document = dict[str, Any]

_DIGITS = 4


def document(cases: Sequence[Case], mode: Mode) -> Document:
    """Return every case's prediction, and the summary by metric."""
    report = score(cases, mode)
    predicted = estimates(cases, mode)
    return {
        "mode": mode.value,
        "cases": [_case(case, one) for case, one in zip(cases, predicted, strict=True)],
        "summary": summary(report),
    }


def summary(report: Report) -> Document:
    """Return accuracy by metric and by physical field, and of the verdicts."""
    metrics: Document = {}
    for metric in word.Metric:
        rows = [row for row in report.rows if row.metric is metric]
        if rows:
            metrics[metric.value] = _metric(rows)
    return {
        "metrics": metrics,
        "framework": _by(report, lambda row: row.case.run.training.framework.value),
        "family": _by(report, lambda row: row.case.run.model.family.value),
        "method": _by(report, lambda row: row.case.run.training.method.value),
        "verdicts": _rounded(asdict(report.verdicts)),
    }


def _metric(rows: Sequence[Scored]) -> Document:
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(row.case.label.group, []).append(row)
    large = large_groups(rows)
    high = [row for row in large if row.case.label.confidence is word.Confidence.HIGH]
    explained = [row for row in rows if not row.case.label.unexplained]
    return {
        **_rounded(asdict(accuracy(rows))),
        f"macro_groups_of_{MIN_GROUP}": _macro(large),
        "macro_high_confidence": _macro(high),
        "mean_without_unexplained": _rounded(asdict(accuracy(explained)))["mean"],
        "groups_by_name": {
            name: _rounded(asdict(accuracy(part))) for name, part in sorted(groups.items())
        },
    }


def _macro(rows: Sequence[Scored]) -> float | None:
    return round(accuracy(rows).macro, _DIGITS) if rows else None


def _by(report: Report, field: Callable[[Scored], str]) -> Document:
    return {name: _rounded(asdict(found)) for name, found in report.by(field).items()}


def _case(case: Case, estimate: CaseEstimate) -> Document:
    metric = case.metric or word.Metric.ALLOCATED
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
