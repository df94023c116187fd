"""The functions for a user's own script, inside and outside a Frenzy job."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import frenzy_trainer as ft
from frenzy_trainer import api


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "plan.json").write_text('{"job": "j", "plan": {"device_count": 2}}')
    monkeypatch.setenv("FRENZY_PLAN", str(tmp_path / "plan.json"))
    monkeypatch.setenv("FRENZY_REPORT_FILE", str(tmp_path / "report.jsonl"))
    monkeypatch.setenv("FRENZY_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("FRENZY_RESUME_FROM", str(tmp_path / "checkpoints" / "step-4"))
    monkeypatch.setenv("FRENZY_ATTEMPT", "2")
    api._reporter.cache_clear()
    yield tmp_path
    reporter = api._reporter()
    assert reporter is not None
    reporter.file.__exit__(None, None, None)
    api._reporter.cache_clear()


def reports(job: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (job / "report.jsonl").read_text().splitlines()]


def test_importing_it_stays_light() -> None:
    code = (
        "import sys, frenzy_trainer; assert not {'torch', 'numpy', 'deepspeed'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_outside_frenzy_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLAN", "REPORT_FILE", "CHECKPOINT_DIR", "RESUME_FROM"):
        monkeypatch.delenv(f"FRENZY_{name}", raising=False)
    api._reporter.cache_clear()
    ft.report(step=1, loss=2.0)
    assert (ft.plan(), ft.checkpoint_dir(), ft.resume_from()) == (None, None, None)
    with pytest.raises(RuntimeError, match="need a Frenzy job"), ft.checkpoint(1):
        pass
    api._reporter.cache_clear()


def test_inside_a_job(job: Path) -> None:
    plan = ft.plan()
    assert plan is not None
    assert plan["plan"]["device_count"] == 2
    assert ft.resume_from() == job / "checkpoints" / "step-4"
    ft.report(step=1, loss=3.0)
    ft.report(step=2, loss=2.5, tokens=1000)
    first, second = reports(job)
    assert (first["step"], first["loss"]) == (1, 3.0)
    assert "tokens_per_second" not in first, "there is nothing yet to measure from"
    assert float(str(second["tokens_per_second"])) > 0


def test_a_checkpoint_is_reported_once_it_is_complete(job: Path) -> None:
    with ft.checkpoint(5) as folder:
        (folder / "weights.pt").write_text("w")
        assert not (job / "report.jsonl").exists()
    assert (job / "checkpoints" / "step-5" / "weights.pt").read_text() == "w"
    assert reports(job) == [{"kind": "checkpoint", "step": 5}]


def test_a_failed_checkpoint_leaves_nothing(job: Path) -> None:
    def save() -> None:
        with ft.checkpoint(5) as folder:
            (folder / "weights.pt").write_text("w")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save()
    assert list((job / "checkpoints").iterdir()) == []
    assert not (job / "report.jsonl").exists()
