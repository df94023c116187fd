"""Ranks that get ready while another attempt trains, and wait for its end: real processes."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.support.trainer import Gang, Job, RankResult, start_gang

SPEC = {"max_steps": 6, "checkpoint": {"every_steps": 3, "keep": 3}}
ZERO_1 = {"zero_stage": 1, "ranks": 1, "precision": "bf16"}


@pytest.fixture(scope="module")
def attempts(text: Path, home: Path) -> tuple[RankResult, dict[str, Gang]]:
    """An attempt that trained to its end, and others that got ready meanwhile."""
    present = Job(data=text, micro_batch=4, spec=SPEC)
    next_plan = Job(data=text, micro_batch=2, accumulation=2, zero_stage=2, spec=SPEC)
    shared = {"FRENZY_CHECKPOINT_DIR": str(home / "checkpoints")}
    first = start_gang(present, home / "first", environment=shared)
    waiting = {
        name: start_gang(next_plan, home / name, attempt=2, continues=ZERO_1, environment=shared)
        for name in ("goes-on", "given-up")
    }
    for gang in waiting.values():
        wait_until(lambda gang=gang: {"kind": "warm"} in gang.reports(), gang)
    return first.wait()[0], waiting


def wait_until(condition, gang: Gang, timeout_s: float = 180.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert gang.processes[0].poll() is None, gang.wait()[0].stderr[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def release(gang: Gang, resume_from: str) -> None:
    """Write the file whole, as the agent does."""
    temporary = gang.folder / "release.tmp"
    temporary.write_text(json.dumps({"resume_from": resume_from}))
    os.replace(temporary, gang.folder / "release.json")


def test_ready_ranks_do_nothing_until_they_are_told(attempts) -> None:
    first, waiting = attempts
    assert first.exit_code == 0, first.stderr
    for gang in waiting.values():
        assert gang.reports() == [{"kind": "warm"}]
        assert gang.processes[0].poll() is None


def test_they_go_on_under_another_plan_with_the_losses_of_the_one_that_trained(
    attempts, home
) -> None:
    first, waiting = attempts
    gang = waiting["goes-on"]
    release(gang, str(home / "checkpoints" / "step-3"))
    (ended,) = gang.wait()
    assert ended.exit_code == 0, ended.stderr
    assert "resumed from step 3" in ended.stdout
    assert "converted to this plan" in ended.stdout
    assert [report["step"] for report in ended.of("step")] == [4, 5, 6]
    assert ended.losses == pytest.approx(first.losses[3:], abs=5e-3)


def test_one_that_is_given_up_leaves_at_once_and_saves_nothing(attempts, home) -> None:
    gang = attempts[1]["given-up"]
    before = sorted((home / "checkpoints").iterdir())
    gang.signal(signal.SIGTERM)
    (ended,) = gang.wait(timeout=20)
    assert ended.exit_code == 143
    assert ended.reports == [{"kind": "warm"}]
    assert sorted((home / "checkpoints").iterdir()) == before
