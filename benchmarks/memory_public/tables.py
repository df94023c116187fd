"""The tables that the benchmark prints."""

from collections.abc import Callable, Sequence

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.scoring import (
    MIN_GROUP,
    Accuracy,
    Mode,
    Report,
    Scored,
    accuracy,
    large_groups,
)

_HEADER = f"{'':26}{'n':>5}{'mean':>8}{'p10':>8}{'<=5%':>8}{'<=10%':>8}{'>high':>8}{'width':>8}"


def print_report(reports: Sequence[Report], *, worst: int) -> None:
    """Print the modes side by side, then the analytical mode in detail."""
    print("macro mean accuracy over groups (of 8 rows and more / all / high confidence)")
    print(f"{'':26}" + "".join(f"{report.mode.value:>24}" for report in reports))
    for metric in word.Metric:
        cells = [_macros(report, metric) for report in reports]
        if any(cells):
            print(f"{metric.value:26}" + "".join(f"{cell:>24}" for cell in cells))
    for report in reports:
        verdict = report.verdicts
        print(
            f"verdicts {report.mode.value}: balanced {verdict.balanced_accuracy:.3f}, "
            f"{verdict.unsafe} of {verdict.oom} OOM called fits, "
            f"{verdict.false_refusals} of {verdict.fits} runs refused"
        )
    for report in reports:
        if report.mode is not Mode.FRENZY_2024:
            _details(report)
        if report.mode is Mode.ANALYTICAL and worst:
            _worst(report, worst)


def _macros(report: Report, metric: word.Metric) -> str:
    rows = [row for row in report.rows if row.metric is metric]
    large = large_groups(rows)
    high = [row for row in large if row.case.label.confidence is word.Confidence.HIGH]
    parts = [f"{accuracy(part).macro:.3f}" if part else "-" for part in (large, rows, high)]
    return " / ".join(parts) if rows else ""


def _details(report: Report) -> None:
    left_out = " (each group predicted from the others)" if report.mode is Mode.CORRECTED else ""
    print(f"\n== {report.mode.value}{left_out}; groups under {MIN_GROUP} rows in brackets")
    fields: tuple[tuple[str, Callable[[Scored], str]], ...] = (
        ("metric and group", lambda row: f"{row.metric} {row.case.label.group}"),
        ("framework", lambda row: row.case.run.training.framework.value),
        ("family", lambda row: row.case.run.model.family.value),
        ("method", lambda row: row.case.run.training.method.value),
    )
    for title, field in fields:
        print(f"-- by {title}\n{_HEADER}")
        for name, found in report.by(field).items():
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
    for row in sorted(report.rows, key=lambda row: row.accuracy)[:count]:
        flag = " UNEXPLAINED" if row.case.label.unexplained else ""
        print(
            f"{row.case.label.id:30.30} {row.metric:10} measured {row.measured:7.2f} "
            f"predicted {row.predicted.expected:7.2f}{flag}"
        )
