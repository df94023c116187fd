"""The same figures as PNG files, for slides and papers; needs matplotlib."""

from pathlib import Path

from matplotlib.figure import Figure

from frenzy_simulator.report.figures import Chart, Gantt
from frenzy_simulator.report.svg import COLOURS, colour


def save_chart(chart: Chart, path: Path) -> None:
    """Draw a line chart."""
    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for number, line in enumerate(chart.lines):
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        axes.plot(
            xs,
            ys,
            drawstyle="steps-post" if line.steps else "default",
            color=colour(number),
            label=line.name,
        )
    if chart.logarithmic and any(line.points for line in chart.lines):
        axes.set_xscale("log")
    axes.set(title=chart.title, xlabel=chart.across, ylabel=chart.up)
    axes.grid(visible=True, alpha=0.3)
    if chart.lines:
        axes.legend()
    figure.savefig(path)


def save_gantt(chart: Gantt, path: Path) -> None:
    """Draw a row per node and a lane per device."""
    figure = Figure(
        figsize=(11, 1.2 + 0.5 * max(len(chart.rows), 1)), dpi=120, layout="constrained"
    )
    axes = figure.add_subplot()
    for bar in chart.bars:
        lane = 0.85 / chart.rows[bar.row][1]
        axes.broken_barh(
            [(bar.start_h, bar.end_h - bar.start_h)],
            (bar.row + bar.lane * lane, bar.lanes * lane),
            facecolor=COLOURS[sum(bar.job.encode()) % len(COLOURS)],
            edgecolor="black" if bar.restart else "none",
            linewidth=0.4,
        )
    names = [name for name, _ in chart.rows]
    axes.set_yticks([row + 0.45 for row in range(len(names))], names)
    axes.set(title=chart.title, xlabel="hours")
    axes.invert_yaxis()
    figure.savefig(path)
