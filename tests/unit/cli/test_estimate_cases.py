"""Predictions for a file of measured runs."""

import io
import json
import re
from pathlib import Path

import pytest
from tests.support.marp_cases import PARAMETERS, case_fields

STEP_GIB = 10 * PARAMETERS / 2**30


@pytest.fixture
def cases_file(tmp_path):
    def write(*rows):
        path = tmp_path / "cases.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return str(path)

    return write


def test_json_has_every_field_of_the_format(cli, cases_file):
    path = cases_file(case_fields(readings={"allocated": STEP_GIB}))
    result = cli("estimate", "--cases", path, "-o", "json")
    assert result.code == 0, result.err
    made = json.loads(result.out)
    row = made["cases"][0]
    assert set(row) == {
        "id",
        "predicted_gib",
        "by_metric",
        "moment",
        "terms_gib",
        "verdict",
        "p_oom",
    }
    for band in row["by_metric"].values():
        assert band["low"] <= band["expected"] <= band["high"]
    found = made["summary"]["metrics"]["allocated"]
    assert found["n"] == 1
    assert found["mean"] == pytest.approx(1.0)
    assert {"macro", "median", "p10", "within_5pct", "within_10pct", "above_high"} <= set(found)
    assert made["summary"]["verdicts"]["false_refusals"] == 0


@pytest.mark.parametrize("mode", ["frenzy-2024", "analytical", "learned"])
def test_people_get_a_table_and_the_accuracy(cli, cases_file, mode):
    path = cases_file(case_fields(readings={"allocated": STEP_GIB}), case_fields(id="two"))
    result = cli("estimate", "--cases", path, "--mode", mode)
    assert result.code == 0, result.err
    for text in ("hand-1", "two", f"accuracy of {mode}", "allocated", "verdicts: "):
        assert text in result.out


def test_standard_input_is_read(cli, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(json.dumps(case_fields()).encode()))
    monkeypatch.setattr("sys.stdin", stream)
    result = cli("estimate", "--cases", "-", "-o", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["cases"][0]["id"] == "hand-1"


def test_rows_that_cannot_run_are_listed_with_the_reason(cli, cases_file):
    bad = case_fields(id="bad", parallelism={"tensor": 3}, gpu={"count": 3})
    path = cases_file(case_fields(), bad)
    result = cli("estimate", "--cases", path)
    assert result.code == 0, result.err
    assert "bad: parallelism.tensor: 3 does not divide 8 heads" in result.out


def test_long_files_show_their_beginning(cli, cases_file):
    path = cases_file(*(case_fields(id=f"row-{number}") for number in range(45)))
    result = cli("estimate", "--cases", path)
    assert "... and 5 more" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "missing.jsonl"], "cannot read 'missing.jsonl'"),
        (["gpt2", "--cases", "x.jsonl"], "leave out MODEL"),
        (["--cases", "x.jsonl", "--mode", "best"], "--mode: 'best' is not known"),
    ],
)
def test_what_is_wrong_is_said(cli, arguments, message):
    result = cli("estimate", *arguments)
    assert result.code != 0
    assert message in result.err


def test_a_broken_line_is_named(cli, cases_file):
    result = cli("estimate", "--cases", cases_file(case_fields(), "{"))
    assert result.code != 0
    assert "line 2: not JSON" in result.err


def test_the_row_in_the_how_to_is_understood(cli, cases_file):
    text = (Path(__file__).parents[3] / "docs/howto/estimate-memory.md").read_text()
    row = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    result = cli("estimate", "--cases", cases_file(row), "-o", "json")
    made = json.loads(result.out)
    assert made["summary"]["metrics"]["allocated"]["mean"] > 0.9
    assert made["summary"]["rows_unsupported"] == 0
