"""Numbers that other parts trust: peaks against torch's allocator, exports against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.trainer import Job, run_gang

SUPPORT = Path(__file__).parents[2] / "support"


def run_script(name: str, job: Job, folder: Path) -> list[dict[str, Any]]:
    path = {"PYTHONPATH": str(SUPPORT.parents[1])}
    argv = ("-W", "ignore", "-m", f"tests.support.{name}")
    results = run_gang(job, folder, argv=argv, environment=path)
    assert [rank.exit_code for rank in results] == [0] * job.ranks, results[0].stderr
    return [json.loads(line) for line in results[0].stdout.splitlines()]


def test_the_accountant_agrees_with_torchs_allocator(tmp_path: Path) -> None:
    lines = run_script("trainer_peaks", Job(data=tmp_path), tmp_path)
    by_case: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_case.setdefault(str(line["case"]), []).append(line)
    assert len(by_case) == 5
    for case, runs in by_case.items():
        [counted] = {run["counted"] for run in runs}
        assert counted == pytest.approx(min(run["allocator"] for run in runs), rel=0.01), case


def test_transformers_reloads_every_export_with_equal_logits(tmp_path: Path) -> None:
    lines = run_script("trainer_exports", Job(data=tmp_path, ranks=2), tmp_path)
    assert len(lines) == 11
    for line in lines[:2]:
        assert line["before"] > 1e-2, "training changed the model"
        assert max(line["merged"], line["beside"]) < 1e-5, line["case"]
    for line in lines[2:]:
        assert line["equal"], line["case"]
        assert line["tied"] == ("untied" not in line["case"])
        assert line["dtype"] == ("torch.float32" if "ZeRO-0" in line["case"] else "torch.bfloat16")
