"""Figures as SVG text that stands inside a page: no files, no scripts, colours of the page."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from frenzy_simulator.report.figures import Chart, Gantt, Line

COLOURS: Final = (
    "#3b7dd8", "#e07a1f", "#2f9e66", "#c2374a", "#8456c8", "#8a6d3b", "#d265a8", "#5b6770",
)  # fmt: skip
_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 28, 44
_LETTER = 6.5  # width of one in a legend
_ROW, _LABEL = 34, 190  # of a Gantt chart


def draw_chart(chart: Chart) -> str:
    """Return a line chart with axes, grid and legend."""
    lines = [line for line in chart.lines if line.points]
    across = _Axis([x for line in lines for x, _ in line.points], chart.logarithmic)
    up = _Axis([0.0, *(y for line in lines for _, y in line.points)], logarithmic=False)
    body = [*_grid(across, up, chart), *_legend([line.name for line in lines])]
    for number, line in enumerate(lines):
        body.append(
            f'<path d="{_path(line, across, up)}" fill="none" stroke="{colour(number)}"'
            ' stroke-width="1.6"/>'
        )
    return _svg(chart.title, _WIDTH, _HEIGHT, body)


def draw_gantt(chart: Gantt) -> str:
    """Return a row per node, a lane per device, a bar per stay; restarts have a dark edge."""
    height = _TOP + _ROW * len(chart.rows) + _BOTTOM
    axis = _Axis([0.0, *(bar.end_h for bar in chart.bars)], logarithmic=False)
    body: list[str] = []
    for row, (name, _) in enumerate(chart.rows):
        top = float(_TOP + row * _ROW)
        body.append(_text(_LABEL - 8, top + _ROW / 2 + 4, name, "end"))
        body.append(_rule(_LABEL, top + _ROW - 2, _WIDTH - _RIGHT, top + _ROW - 2))
    for bar in chart.bars:
        lane = (_ROW - 6) / chart.rows[bar.row][1]
        left, right = (axis.place(x, _LABEL, _WIDTH - _RIGHT) for x in (bar.start_h, bar.end_h))
        top = _TOP + bar.row * _ROW + 2 + bar.lane * lane
        shade = COLOURS[sum(bar.job.encode()) % len(COLOURS)]
        edge = ' stroke="currentColor" stroke-width="0.6"' if bar.restart else ""
        body.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.3):.1f}"'
            f' height="{max(bar.lanes * lane - 0.5, 0.5):.1f}" fill="{shade}"{edge}>'
            f"<title>{escape(bar.job)}: {bar.start_h:.2f} to {bar.end_h:.2f} h, "
            f"{bar.lanes} GPUs</title></rect>"
        )
    for value, label in axis.ticks():
        body.append(_text(axis.place(value, _LABEL, _WIDTH - _RIGHT), height - _BOTTOM + 18, label))
    body.append(_text((_LABEL + _WIDTH) / 2, height - 8, "hours"))
    return _svg(chart.title, _WIDTH, height, body)


def colour(number: int) -> str:
    """Return the colour of the n-th line."""
    return COLOURS[number % len(COLOURS)]


class _Axis:
    """From values to places, with ticks at round values."""

    def __init__(self, values: Sequence[float], logarithmic: bool) -> None:  # noqa: FBT001 - a name of the caller's
        found = [value for value in values if value > 0] if logarithmic else list(values)
        low, high = min(found, default=0.0), max(found, default=1.0)
        self.logarithmic = logarithmic and low > 0
        if high <= low:
            high = low * 1.1 if self.logarithmic else low + 1.0
        self.low, self.high = low, high

    def place(self, value: float, start: float, end: float) -> float:
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            share = (math.log(max(value, self.low)) - low) / (high - low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return start + share * (end - start)

    def ticks(self) -> Iterator[tuple[float, str]]:
        if self.logarithmic:
            first = math.floor(math.log10(self.low))
            powers = range(first, math.ceil(math.log10(self.high)) + 1)
            values = [step * 10.0**power for power in powers for step in (1, 3)]
        else:
            step = _round_step((self.high - self.low) / 6)
            numbers = range(math.ceil(self.low / step), 1 + int(self.high / step))
            values = [step * number for number in numbers]
        for value in values:
            if self.low <= value <= self.high:
                yield value, f"{value:.6g}"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def _grid(across: _Axis, up: _Axis, chart: Chart) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value, label in up.ticks():
        y = up.place(value, bottom, _TOP)
        yield _rule(_LEFT, y, right, y)
        yield _text(_LEFT - 6, y + 4, label, "end")
    for value, label in across.ticks():
        x = across.place(value, _LEFT, right)
        yield _rule(x, _TOP, x, bottom)
        yield _text(x, bottom + 16, label)
    yield _text((_LEFT + right) / 2, _HEIGHT - 8, chart.across)
    middle = (_TOP + bottom) / 2
    yield f'<g transform="rotate(-90 14 {middle})">{_text(14, middle, chart.up)}</g>'


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = float(_LEFT)
    for number, name in enumerate(names):
        yield f'<rect x="{x:.0f}" y="7" width="10" height="10" fill="{colour(number)}"/>'
        yield _text(x + 15, 16, name, "start")
        x += 34 + _LETTER * len(name)


def _path(line: Line, across: _Axis, up: _Axis) -> str:
    parts: list[str] = []
    for x, y in line.points:
        left = across.place(x, _LEFT, _WIDTH - _RIGHT)
        top = up.place(y, _HEIGHT - _BOTTOM, _TOP)
        if not parts:
            parts.append(f"M{left:.1f} {top:.1f}")
        else:
            parts.append(f"H{left:.1f}V{top:.1f}" if line.steps else f"L{left:.1f} {top:.1f}")
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="rule" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _svg(title: str, width: int, height: int, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg>"
    )
