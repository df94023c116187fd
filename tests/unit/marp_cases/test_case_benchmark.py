"""The benchmark on public runs: what it says with, without and with broken files."""

import json
from xml.etree import ElementTree as ET

import pytest
from benchmarks.memory_public.__main__ import main, read_files
from benchmarks.memory_public.evaluation import evaluate
from benchmarks.memory_public.evidence import write_evidence
from benchmarks.memory_public.peers import Peer, score_peers
from benchmarks.memory_public.plot import write_plot
from tests.support.marp_cases import PARAMETERS, case_fields

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import parse_case
from frenzy_marp.core.cases.corrections import correction_keys
from frenzy_marp.core.cases.learned import from_json
from frenzy_marp.core.cases.modes import Mode

STEP_GIB = 10 * PARAMETERS / 2**30


@pytest.fixture
def run(monkeypatch):
    def call(*arguments):
        monkeypatch.delenv("FRENZY_CASES", raising=False)
        monkeypatch.setattr("sys.argv", ["memory_public", *map(str, arguments)])
        return main()

    return call


def test_it_says_when_it_has_no_cases(run, capsys):
    assert run() == 0
    assert "skipped: no cases" in capsys.readouterr().out


def test_it_names_the_line_it_cannot_read(run, capsys, tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case_fields()) + "\n{\n")
    assert run("--cases", path) == 2
    assert "cases.jsonl: line 2" in capsys.readouterr().err


def test_it_prints_the_modes_side_by_side(run, capsys, tmp_path):
    path = tmp_path / "cases.jsonl"
    rows = [
        case_fields(id=str(n), group="ab"[n % 2], readings={"allocated": STEP_GIB})
        for n in range(8)
    ]
    path.write_text(
        "\n".join(json.dumps(row) for row in [*rows, case_fields(id="bad", model=None)])
    )
    cases, refused = read_files([path])
    assert (len(cases), len(refused)) == (8, 1)
    assert run("--cases", path, "--worst", "1") == 0
    out = capsys.readouterr().out
    assert "unsupported: bad: " in out
    for mode in Mode:
        assert mode.value in out


def test_a_peer_that_is_not_installed_is_reported_as_such():
    missing = Peer("missing", "no-such-package", "no_such_module", lambda module, run: 1.0)
    assert "pip install no-such-package" in score_peers([], [missing])["missing"]["unavailable"]


def test_a_peer_is_scored_on_the_rows_it_can_express():
    cases = [
        parse_case(case_fields(readings={"allocated": STEP_GIB})),
        parse_case(case_fields(readings={"allocated": 1.0}, training={"method": "freeze"})),
    ]

    def half(module, run):
        return run.model.num_parameters * 5.0 if run.training.method == "full" else None

    found = score_peers(cases, [Peer("half", "rich", "rich", half)])["half"]
    assert (found["rows_expressed"], found["rows"]) == (1, 2)
    assert found["metrics"]["allocated"]["mean"] == pytest.approx(0.5)
    assert found["metrics"]["allocated"]["marp_mean"] == pytest.approx(1.0)


def test_what_is_fitted_can_be_read_again_and_names_no_source(tmp_path):
    cases = [
        parse_case(case_fields(group=group, readings={"allocated": STEP_GIB * 1.1}))
        for group in ("source-a", "source-b")
    ]
    text = write_evidence(cases, tmp_path / "evidence.json").read_text()
    assert "source-a" not in text
    known = from_json(json.loads(text)["learned"])
    assert known.shift(word.Metric.ALLOCATED, correction_keys(cases[0].run)) > 0


def test_the_plot_is_xml_with_a_point_for_every_reading(tmp_path):
    rows = [case_fields(id=str(n), readings={"allocated": STEP_GIB}) for n in range(3)]
    found = evaluate([parse_case(row) for row in rows])
    write_plot(found, tmp_path / "plot.svg")
    root = ET.parse(tmp_path / "plot.svg").getroot()
    points = [node for node in root if node.tag.endswith("circle") and node.get("r") == "2.6"]
    assert len(points) == 3
