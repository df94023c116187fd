"""Predicted against measured, one small plot a metric, as SVG without any library."""

import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.memory_public.evaluation import Evaluation

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.scoring import Scored, accuracy

_SIDE, _MARGIN, _TOP = 300, 52, 58
_LOW, _HIGH = 1.0, 256.0  # GiB
_TICKS = (1, 4, 16, 64, 256)
_COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#8c6d31", "#666666")


def write_plot(found: Evaluation, path: Path) -> None:
    """Write the analytical mode's readings, coloured by framework, with a band of 10 %."""
    report = found.report("analytical")
    metrics = [metric for metric in word.Metric if any(r.metric is metric for r in report.rows)]
    frameworks = list(report.by(_framework))
    width = _MARGIN + len(metrics) * (_SIDE + _MARGIN)
    height = _TOP + _SIDE + 78
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        (
            f'<text x="{_MARGIN}" y="22" font-size="15">Peak memory of public training runs: '
            "predicted from the configuration alone (analytical mode) against measured, GiB</text>"
        ),
    ]
    for place, metric in enumerate(metrics):
        rows = [row for row in report.rows if row.metric is metric]
        left = _MARGIN + place * (_SIDE + _MARGIN)
        parts += _panel(metric.value, rows, frameworks, left)
    parts += _legend(frameworks, height - 14)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _panel(title: str, rows: Sequence[Scored], frameworks: list[str], left: int) -> list[str]:
    summary = accuracy(rows)
    bottom = _TOP + _SIDE
    band = " ".join(
        f"{left + _along(x):.1f},{bottom - _along(x * factor):.1f}"
        for factor, ends in ((1.1, (_LOW, _HIGH)), (1 / 1.1, (_HIGH, _LOW)))
        for x in ends
    )
    parts = [
        (
            f'<text x="{left}" y="{_TOP - 10}">{title}: n {summary.n}, mean {summary.mean:.3f}, '
            f"{100 * summary.within_10pct:.0f} % within 10 %</text>"
        ),
        f'<rect x="{left}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999"/>',
        f'<polygon points="{band}" fill="#eeeeee"/>',
        f'<line x1="{left}" y1="{bottom}" x2="{left + _SIDE}" y2="{_TOP}" stroke="#999"/>',
    ]
    for tick in _TICKS:
        at = _along(tick)
        parts.append(
            f'<text x="{left + at:.1f}" y="{bottom + 15}" text-anchor="middle">{tick}</text>'
        )
        parts.append(
            f'<text x="{left - 5}" y="{bottom - at + 4:.1f}" text-anchor="end">{tick}</text>'
        )
    for row in rows:
        x, y = left + _along(row.measured), bottom - _along(row.predicted.expected)
        colour = _colour(frameworks, _framework(row))
        hollow = row.case.label.unexplained
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" stroke="{colour}" '
            f'fill="{"none" if hollow else colour}" fill-opacity="0.6"/>'
        )
    parts.append(
        f'<text x="{left + _SIDE / 2:.0f}" y="{bottom + 31}" text-anchor="middle">measured</text>'
    )
    return parts


def _legend(frameworks: list[str], y: int) -> list[str]:
    parts: list[str] = []
    x = _MARGIN
    for name in frameworks:
        colour = _colour(frameworks, name)
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 9}" y="{y}">{name}</text>')
        x += 34 + 7 * len(name)
    parts.append(f'<text x="{x}" y="{y}">hollow: marked unexplained; grey band: 10 %</text>')
    return parts


def _framework(row: Scored) -> str:
    return row.case.run.training.framework.value


def _colour(frameworks: list[str], name: str) -> str:
    return _COLOURS[min(frameworks.index(name), len(_COLOURS) - 1)]


def _along(size: float) -> float:
    share = math.log(min(max(size, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return share * _SIDE
