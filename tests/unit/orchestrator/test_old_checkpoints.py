"""Which checkpoints go, when, and what of a job's folder stays."""

import os

import pytest
from tests.support.state import FakeClock

from frenzy_orchestrator.adapters.checkpoints import OldCheckpoints

DAY_S = 86_400
JOB, OTHER = "1" * 26, "2" * 26


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def old(tmp_path, clock):
    return OldCheckpoints(root=tmp_path, keep_s=30 * DAY_S, clock=clock)


def folder(old, job, *names, days_ago=0.0):
    for name in names:
        path = old.root / job / name
        path.mkdir(parents=True)
        (path / "weights").write_text("x")
    written_s = old.clock.now_ms() / 1000 - days_ago * DAY_S
    for path in (*(old.root / job).iterdir(), old.root / job):
        os.utime(path, (written_s, written_s))


def left(old, job=JOB):
    return sorted(path.name for path in (old.root / job).iterdir())


async def answered(old, over):
    """Ask, hear, and do what follows."""
    await old.work()
    asked = old.asking
    old.hear(asked, over)
    await old.work()
    return asked


def ago(clock, days):
    return clock.now_ms() - round(days * DAY_S * 1000)


async def test_steps_of_a_job_that_ended_long_ago_go_and_its_model_stays(old, clock):
    folder(old, JOB, "step-10", "step-20", ".tmp-1-30", "model", "mine")
    assert await answered(old, {JOB: ago(clock, 31)}) == (JOB,)
    assert left(old) == ["mine", "model"]
    assert old.asking == ()


async def test_a_job_that_ended_lately_or_has_not_ended_keeps_all(old, clock):
    folder(old, JOB, "step-10", days_ago=400)
    folder(old, OTHER, "step-10", days_ago=400)
    assert await answered(old, {JOB: ago(clock, 29)}) == (JOB, OTHER)
    assert left(old) == left(old, OTHER) == ["step-10"]


async def test_of_a_job_that_nobody_knows_the_last_write_counts(old):
    folder(old, JOB, "step-10", days_ago=31)
    folder(old, OTHER, "step-10", days_ago=29)
    await answered(old, {JOB: 0, OTHER: 0})
    assert not (old.root / JOB).exists(), "nothing was left in it"
    assert left(old, OTHER) == ["step-10"]


async def test_even_a_short_time_gives_unknown_jobs_a_day(old):
    old.keep_s = 60.0
    folder(old, JOB, "step-10", days_ago=0.9)
    await answered(old, {JOB: 0})
    assert left(old) == ["step-10"]


async def test_a_control_plane_that_does_not_answer_costs_nothing(old, clock):
    folder(old, JOB, "step-10", days_ago=400)
    await answered(old, {})
    assert left(old) == ["step-10"]
    clock.advance(3601)
    assert await answered(old, {JOB: ago(clock, 31)}) == (JOB,), "asked again after an hour"
    assert not (old.root / JOB).exists()


async def test_few_are_asked_about_at_once_and_all_in_the_end(old):
    jobs = [f"{number:026d}" for number in range(70)]
    for job in jobs:
        folder(old, job, "step-1")
    await old.work()
    asked = []
    while old.asking:
        assert len(old.asking) <= 32
        asked += old.asking
        old.hear(old.asking, {})
    assert asked == jobs


async def test_only_folders_of_jobs_with_checkpoints_are_asked_about(old):
    folder(old, "my-own-folder", "step-1")
    folder(old, JOB, "model")
    (old.root / OTHER).write_text("a file")
    await old.work()
    assert old.asking == ()


async def test_zero_keeps_everything(tmp_path, clock):
    old = OldCheckpoints(root=tmp_path, keep_s=0, clock=clock)
    folder(old, JOB, "step-10", days_ago=400)
    await old.work()
    assert old.asking == ()


async def test_a_folder_that_is_not_there_yet_is_no_error(tmp_path, clock):
    await OldCheckpoints(root=tmp_path / "none", keep_s=1, clock=clock).work()
