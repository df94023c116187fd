"""Reports: the figures by hand, and a page that needs nothing else."""

import xml.etree.ElementTree as ET  # noqa: S405 - our own output
from html.parser import HTMLParser

import pytest
from tests.support.simulation import a_job, a_plan, a_setup, nodes, simulate
from typer.testing import CliRunner

from frenzy.cli.app import build
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.report import figures
from frenzy_simulator.report.figures import completion_times, gantt, queue, use
from frenzy_simulator.report.page import prepare, write_report
from frenzy_simulator.report.svg import draw_chart, draw_gantt

MACHINES = nodes(t4=(2, 2))


def one_after_the_other():
    """``a`` has both devices of a node for an hour, ``b`` waits half an hour for what it needs."""
    wide = a_plan("p", "t4", 4, 1.0)
    jobs = [a_job("a", 0, 3600, a_setup()), a_job("b<", 1800, 1800, a_setup())]
    return simulate("has", jobs, MACHINES, {a_setup(): (wide,)})


def test_figures_are_what_happened():
    outcome = one_after_the_other()
    (line,) = completion_times([outcome]).lines
    assert line.points == ((1.0, 0.5), (1.0, 1.0))
    (line,) = queue([outcome]).lines
    assert line.points == ((0.0, 0.0), (0.5, 1.0), (1.0, 0.0), (1.5, 0.0))
    (line,) = use(outcome).lines
    assert (line.name, line.points) == ("t4", ((0.0, 4.0), (1.0, 4.0), (1.5, 0.0)))
    chart = gantt(outcome, MACHINES)
    assert chart.rows == (("t4-0 t4", 2), ("t4-1 t4", 2))
    found = [(bar.job, bar.row, bar.lane, bar.lanes, bar.start_h, bar.end_h) for bar in chart.bars]
    assert found == [
        ("a", 0, 0, 2, 0.0, 1.0),
        ("a", 1, 0, 2, 0.0, 1.0),
        ("b<", 0, 0, 2, 1.0, 1.5),
        ("b<", 1, 0, 2, 1.0, 1.5),
    ]
    assert not any(bar.restart for bar in chart.bars)


def test_large_figures_are_cut_and_say_so(monkeypatch):
    monkeypatch.setattr(figures, "MAX_ROWS", 1)
    monkeypatch.setattr(figures, "MAX_BARS", 1)
    chart = gantt(one_after_the_other(), MACHINES)
    assert "the first 1 of 2 nodes" in chart.title
    assert "the 1 longest stays" in chart.title
    assert [bar.job for bar in chart.bars] == ["a"]
    monkeypatch.setattr(figures, "MAX_POINTS", 2)
    (line,) = queue([one_after_the_other()]).lines
    assert max(y for _, y in line.points) == 1.0  # peaks stay


def test_drawings_are_well_formed_even_of_nothing():
    empty = simulate("has", [], MACHINES, {})
    for outcome in (one_after_the_other(), empty):
        for chart in (completion_times([outcome]), queue([outcome]), use(outcome)):
            ET.fromstring(draw_chart(chart))  # noqa: S314 - our own output
        ET.fromstring(draw_gantt(gantt(outcome, MACHINES)))  # noqa: S314


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.outside, self.tables = [], 0

    def handle_starttag(self, tag, attrs):
        self.tables += tag == "table"
        self.outside += [v for k, v in attrs if k in ("src", "href") or tag in ("script", "link")]


def test_a_page_needs_nothing_else_and_escapes_names(tmp_path):
    target = tmp_path / "deep" / "page.html"
    prepare(target)
    assert write_report(target, [one_after_the_other()], MACHINES, 1800.0) == [target]
    text = target.read_text()
    links = Links()
    links.feed(text)
    assert (links.outside, links.tables) == ([], 1)
    assert "b&lt;" in text
    assert "b<" not in text
    assert "an average of 0.500 h" in text


def test_a_folder_gets_pngs_as_well(tmp_path):
    pytest.importorskip("matplotlib")
    prepare(tmp_path)
    written = write_report(tmp_path, [one_after_the_other()], MACHINES, None)
    assert [path.name for path in written] == [
        "report.html", "completion-times.png", "queue.png", "use-has.png", "nodes-has.png",
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidScenario, match="cannot write the report"):
        prepare(tmp_path / "file" / "report")


def test_the_command_writes_a_report(tmp_path):
    page = tmp_path / "r.html"
    arguments = ["--jobs", "8", "--policy", "has", "-q", "--bound", "none", "--report", str(page)]
    result = CliRunner().invoke(build({"simulate"}), ["simulate", *arguments])
    assert result.exit_code == 0, result.output
    assert "8 jobs on" in page.read_text()
