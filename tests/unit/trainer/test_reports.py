"""Report lines are whole, known fields only, appended."""

import json
from pathlib import Path

import pytest

from frenzy_shared.domain.job import StopReason
from frenzy_trainer.reports import ReportFile, read_steps


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_appends_across_openings_and_is_visible_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ranks" / "0" / "report.jsonl"
    with ReportFile(path) as report:
        report.step(1, loss=2.5, learning_rate=None)
        assert lines(path)[0]["loss"] == 2.5, "before the file is closed"
    with ReportFile(path) as report:
        report.checkpoint(1)
        report.failure(StopReason.DATA_ERROR, "x" * 10_000)
        report.summary(last_step=1, model_dir="/m")
    step, checkpoint, failure, summary = lines(path)
    assert step.keys() == {"kind", "step", "time_ms", "loss"}, "what is not known is left out"
    assert checkpoint == {"kind": "checkpoint", "step": 1}
    assert failure["reason"] == "DataError"
    assert len(str(failure["message"])) == 4000
    assert summary == {"kind": "summary", "last_step": 1, "model_dir": "/m"}
    assert [record["step"] for record in read_steps(path)] == [1]


def test_numbers_that_json_cannot_hold_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    with ReportFile(path) as report:
        report.step(1, loss=float("nan"), tokens_per_second=float("inf"), step_seconds=0.5)
    assert lines(path)[0].keys() == {"kind", "step", "time_ms", "step_seconds"}


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b"[1]",
        b'{"step": 3}',
        b'{"kind": "step"}',
        b'{"kind": "step", "step": "3"}',
        b'{"kind": "step", "step": 3, "loss": "\xff"}',
        b'{"kind": "step", "step": 3, "loss": NaN}',
    ],
)
def test_lines_that_user_code_wrote_are_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "report.jsonl"
    with ReportFile(path) as report:
        report.step(1, loss=2.5)
        path.write_bytes(path.read_bytes() + line + b"\n")
        report.step(2, loss=1.5)
    assert [record["step"] for record in read_steps(path)] == [1, 2]
