"""One self-contained page about simulations: table, completion times, queue, use, who ran where."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from frenzy_shared.domain.cluster import NodeRecord, summarize_kinds
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.metrics import Summary, summarize
from frenzy_simulator.outcome import Outcome
from frenzy_simulator.report.figures import Chart, Gantt, completion_times, gantt, queue, use
from frenzy_simulator.report.svg import draw_chart, draw_gantt

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em;
       color: #1d2429; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin: 2em 0 .4em; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25em .5em; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; } svg { width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
svg .rule { stroke: currentColor; opacity: .15; }
footer { margin-top: 3em; font-size: .85em; opacity: .7; }
@media (prefers-color-scheme: dark) { body { color: #dfe5e9; background: #15191c; } }
"""


def prepare(target: Path) -> None:
    """Make the folder before anything is simulated for it.

    Raises:
        InvalidScenario: nothing can be written there.
    """
    folder = target.parent if _is_page(target) else target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = _page_path(target)
        page.touch()
    except OSError as error:
        raise InvalidScenario(
            f"cannot write the report to {target}: {error.strerror}",
            suggestions=["name a folder, or a file that ends in .html"],
        ) from error


def write_report(
    target: Path, outcomes: Sequence[Outcome], nodes: Sequence[NodeRecord], bound_s: float | None
) -> list[Path]:
    """Write ``target``, a page, or a folder of a page and, with matplotlib, PNGs; return the files.

    ``prepare`` must have been called.
    """
    figures = dict(_figures(outcomes, nodes))
    page = _page_path(target)
    page.write_text(_html(outcomes, nodes, bound_s, list(figures.values())), encoding="utf-8")
    written = [page]
    if not _is_page(target) and find_spec("matplotlib") is not None:
        png = import_module("frenzy_simulator.report.png")
        for name, figure in figures.items():
            path = target / f"{name}.png"
            save = png.save_chart if isinstance(figure, Chart) else png.save_gantt
            save(figure, path)
            written.append(path)
    return written


def _is_page(target: Path) -> bool:
    return target.suffix.lower() in (".html", ".htm")


def _page_path(target: Path) -> Path:
    return target if _is_page(target) else target / "report.html"


def _figures(
    outcomes: Sequence[Outcome], nodes: Sequence[NodeRecord]
) -> Iterator[tuple[str, Chart | Gantt]]:
    yield "completion-times", completion_times(outcomes)
    yield "queue", queue(outcomes)
    for outcome in outcomes:
        yield f"use-{outcome.policy}", use(outcome)
        yield f"nodes-{outcome.policy}", gantt(outcome, nodes)


def _html(
    outcomes: Sequence[Outcome],
    nodes: Sequence[NodeRecord],
    bound_s: float | None,
    figures: Sequence[Chart | Gantt],
) -> str:
    kinds = ", ".join(f"{kind.total} x {kind.kind}" for kind in summarize_kinds(nodes))
    summaries = [summarize(outcome) for outcome in outcomes]
    jobs = max((one.jobs for one in summaries), default=0)
    bound = ""
    if bound_s is not None:
        bound = f" No scheduler can beat an average of {bound_s / 3600:.3f} h."
    drawn = "".join(
        f"<h2>{escape(one.title)}</h2><div class=scroll>"
        f"{draw_chart(one) if isinstance(one, Chart) else draw_gantt(one)}</div>"
        for one in figures
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width"><title>frenzy simulate</title>'
        f"<style>{_STYLE}</style><h1>{jobs} jobs on {escape(kinds)}</h1>"
        f"<p>Times in hours.{bound}</p>{_table(summaries)}{drawn}"
        "<footer>Simulated by <code>frenzy simulate</code>: the scheduler's own code, predicted "
        "speeds. Bars with an edge are restarts.</footer></html>\n"
    )


def _table(summaries: Sequence[Summary]) -> str:
    if not summaries:
        return ""
    rows = [_cells(one) for one in summaries]
    head = "".join(f"<th>{escape(title)}</th>" for title in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _cells(one: Summary) -> Mapping[str, str]:
    return {
        "policy": one.policy,
        "average": f"{one.avg_jct_s / 3600:.3f}",
        "median": f"{one.p50_jct_s / 3600:.3f}",
        "p99": f"{one.p99_jct_s / 3600:.3f}",
        "wait": f"{one.avg_wait_s / 3600:.3f}",
        "makespan": f"{one.makespan_s / 3600:.2f}",
        "used": f"{100 * one.utilization:.0f} %",
        "stops": str(one.preemptions),
        "out of memory": str(one.oom),
        "finished": f"{one.finished}/{one.jobs}",
    }
