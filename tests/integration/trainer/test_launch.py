"""A user's own script as a rank: unchanged, accounted, paced, its end reported."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.trainer import Job, RankResult, run_gang

from frenzy_trainer import launch

EXAMPLE = Path(__file__).parents[3] / "examples" / "torchrun-script" / "train.py"
MIB = 1024**2


def run_script(folder: Path, source: str, *args: str, **options: Any) -> RankResult:
    (folder / "script.py").write_text(source)
    argv = ("-m", "frenzy_trainer.launch", str(folder / "script.py"), *args)
    return run_gang(Job(data=folder, **options), folder / "gang", argv=argv)[0]


def test_the_example_runs_on_two_ranks_and_its_peak_is_known(tmp_path: Path) -> None:
    argv = ("-m", "frenzy_trainer.launch", str(EXAMPLE), "--steps", "4")
    results = run_gang(Job(data=tmp_path, ranks=2), tmp_path, argv=argv)
    assert [rank.exit_code for rank in results] == [0, 0], results[0].stderr
    assert "step 4/4 loss" in results[0].stdout
    # 0.86 M parameters in fp32 with gradients and two moments, and DDP's copy of the gradients
    assert all(17 * MIB < rank.summary["peak_allocated_bytes"] < 40 * MIB for rank in results)


def test_a_script_that_needs_too_much_really_runs_out_of_memory(tmp_path: Path) -> None:
    source = "import torch\nkept = torch.zeros(3, 1024, 1024)\nprint('never')\n"
    rank = run_script(tmp_path, source, memory_bytes=8 * MIB)
    assert rank.exit_code == 1
    assert rank.failure["reason"] == "CudaOutOfMemory"
    assert "Tried to allocate 12.00 MiB" in rank.failure["message"]
    assert "torch.OutOfMemoryError" in rank.stderr, "the user sees the traceback"
    assert "never" not in rank.stdout


def test_arguments_module_name_and_own_imports_are_as_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("value = 42\n")
    source = (
        "import os, sys, helper\n"
        "import frenzy_trainer as ft\n"
        "assert __name__ == '__main__'\n"
        "print(sys.argv[1:], helper.value, os.environ['RANK'])\n"
        "ft.report(step=1, loss=3.0)\n"
        "ft.report(step=2, loss=2.0, tokens=10)\n"
        "sys.exit(0)\n"
    )
    rank = run_script(tmp_path, source, "--flag", "-x")
    assert rank.exit_code == 0, rank.stderr
    assert rank.stdout == "['--flag', '-x'] 42 0\n"
    assert [step["loss"] for step in rank.of("step")] == [3.0, 2.0]
    assert (rank.summary["loss_first"], rank.summary["loss_last"]) == (3.0, 2.0)
    assert rank.summary["last_step"] == 2
    assert rank.of("failure") == []


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("sys.exit(7)", 7, "the script exited with code 7"),
        ("sys.exit('no data')", 1, "the script exited with code 1"),
        ("raise ValueError('bad shape')", 1, "ValueError: bad shape"),
        ("sys.exit(143)", 143, None),
        ("sys.exit()", 0, None),
    ],
)
def test_exit_codes_are_kept_and_failures_explained(
    tmp_path: Path, ending: str, code: int, message: str | None
) -> None:
    rank = run_script(tmp_path, f"import sys\n{ending}\n", memory_bytes=None, speed=None)
    assert rank.exit_code == code
    failures = rank.of("failure")
    if message is None:
        assert failures == []
    else:
        assert failures[0]["reason"] == "UserCodeError"
        assert message in failures[0]["message"]


def test_what_a_script_writes_into_its_report_file_does_not_fail_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    path, script = tmp_path / "report.jsonl", tmp_path / "script.py"
    script.write_text(f"with open({str(path)!r}, 'ab') as file: file.write(b'\\xff\\xfe\\n')\n")
    assert launch.main([str(script)], {"FRENZY_REPORT_FILE": str(path)}) == 0
    assert json.loads(path.read_bytes().splitlines()[-1])["kind"] == "summary"


def test_optimizer_steps_take_the_emulated_devices_time(tmp_path: Path) -> None:
    source = (
        "import time, torch\n"
        "p = torch.nn.Parameter(torch.ones(1)); p.grad = torch.ones(1)\n"
        "o = torch.optim.SGD([p], lr=0.1)\n"
        "o.step()\n"
        "wall, cpu = time.perf_counter(), time.thread_time()\n"
        "while time.thread_time() - cpu < 0.2: pass\n"
        "o.step()\n"
        "print(time.perf_counter() - wall)\n"
    )
    rank = run_script(tmp_path, source, speed=0.25)
    assert rank.exit_code == 0, rank.stderr
    assert float(rank.stdout) >= 0.8, "0.2 s of work at a quarter of the speed"
