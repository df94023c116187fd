"""The benchmark on public runs: what it says with, without and with broken files."""

import json

import pytest
from benchmarks.memory_public.__main__ import main, read_files
from tests.support.marp_cases import PARAMETERS, case_fields

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
