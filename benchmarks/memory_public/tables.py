"""The tables that the benchmark prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.memory_public.evaluation import FIELDS, KNOWN_SOURCES, Evaluation
from benchmarks.memory_public.own_runs import TAUGHT, OwnRuns

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.modes import Mode
from frenzy_marp.core.cases.scoring import (
    MIN_GROUP,
    Accuracy,
    Report,
    Scored,
    accuracy,
    large_groups,
)

_HEADER = f"{'':30}{'n':>5}{'mean':>8}{'p10':>8}{'<=5%':>8}{'<=10%':>8}{'>high':>8}{'width':>8}"


def print_evaluation(found: Evaluation, *, worst: int) -> None:
    """Print the modes side by side, then the analytical mode in detail."""
    reports = found.reports
    print(f"macro mean accuracy (groups of {MIN_GROUP} rows and more / all / high confidence)")
    print(f"{'':26}" + "".join(f"{report.mode:>24}" for report in reports))
    for metric in word.Metric:
        cells = [_macros(report, metric) for report in reports]
        if any(cells):
            print(f"{metric.value:26}" + "".join(f"{cell:>24}" for cell in cells))
    for report in reports:
        print(_verdicts(report))
    for report in reports:
        if report.mode not in {Mode.FRENZY_2024, KNOWN_SOURCES}:
            _details(report)
    if worst:
        _worst(found.report(Mode.ANALYTICAL.value), worst)


def print_own_runs(found: Sequence[OwnRuns]) -> None:
    """Print how well bands hold after runs of one's own."""
    print(f"\n== after {TAUGHT} runs of one's own (other models, same framework, method and card)")
    print(f"{'':62}{'rows':>5}{'>high before':>14}{'>high':>8}{'band':>8}")
    for row in found:
        print(f"{row.key:62}{row.rows:5}{row.before:14.1%}{row.above_high:8.1%}{row.above:8.1%}")


def print_peers(peers: Mapping[str, Mapping[str, Any]]) -> None:
    """Print every peer beside the analytical mode on the rows that the peer can express."""
    if not peers:
        return
    print("\n== peers: mean accuracy / share within 10 %, and MARP's on the same rows")
    for name, found in peers.items():
        if "unavailable" in found:
            print(f"{name:24} {found['unavailable']}")
            continue
        for metric, cell in found["metrics"].items():
            print(
                f"{name:24} {metric:10} n {cell['n']:4}  {cell['mean']:.3f} / "
                f"{cell['within_10pct']:.2f}   MARP {cell['marp_mean']:.3f} / "
                f"{cell['marp_within_10pct']:.2f}"
            )


def _macros(report: Report, metric: word.Metric) -> str:
    rows = [row for row in report.rows if row.metric is metric]
    large = large_groups(rows)
    high = [row for row in large if row.case.label.confidence is word.Confidence.HIGH]
    parts = [f"{accuracy(part).macro:.3f}" if part else "-" for part in (large, rows, high)]
    return " / ".join(parts) if rows else ""


def _verdicts(report: Report) -> str:
    verdict = report.verdicts
    balanced = verdict.balanced_accuracy
    return (
        f"verdicts {report.mode}: balanced {'-' if balanced is None else f'{balanced:.3f}'}, "
        f"{verdict.unsafe} of {verdict.oom} OOM called fits "
        f"(high confidence: {verdict.unsafe_high} of {verdict.oom_high}), "
        f"{verdict.false_refusals} of {verdict.fits} runs refused"
    )


def _details(report: Report) -> None:
    print(f"\n== {report.mode}, each group from the others; under {MIN_GROUP} rows in brackets")
    print(f"-- by metric\n{_HEADER}")
    for name, found in report.by(lambda row: row.metric.value).items():
        print(_line(name, found))
    for title, field in FIELDS.items():
        print(f"-- by metric and {title}\n{_HEADER}")
        parts = report.by(lambda row, field=field: f"{row.metric} {field(row)}")  # type: ignore[misc]
        for name, found in parts.items():
            print(_line(name if found.n >= MIN_GROUP else f"({name})", found))


def _line(name: str, found: Accuracy) -> str:
    shares = (
        found.mean,
        found.p10,
        found.within_5pct,
        found.within_10pct,
        found.above_high,
        found.median_width,
    )
    return f"{name:30.30}{found.n:>5}" + "".join(f"{share:>8.3f}" for share in shares)


def _worst(report: Report, count: int) -> None:
    print(f"-- the {count} worst rows")
    for row in worst_rows(report.rows, count):
        flag = " UNEXPLAINED" if row.case.label.unexplained else ""
        print(
            f"{row.case.label.id:30.30} {row.metric:10} measured {row.measured:7.2f} "
            f"predicted {row.predicted.expected:7.2f}{flag}"
        )


def worst_rows(rows: Sequence[Scored], count: int) -> list[Scored]:
    """Return the rows that are furthest off."""
    return sorted(rows, key=lambda row: row.accuracy)[:count]
