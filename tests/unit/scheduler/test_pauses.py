"""A pause between attempts keeps its length when the wall clock is put right amid it."""

from dataclasses import dataclass

import pytest

from frenzy_scheduler.pauses import Pauses
from frenzy_shared.domain.ids import JobId, ProjectName
from frenzy_shared.domain.job import JobRecord, JobState

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@dataclass
class TwoHands:
    """A wall clock and a clock that never jumps."""

    wall_ms: int = NOW_MS
    seconds: float = 50.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def pass_s(self, seconds: float) -> None:
        self.wall_ms += round(seconds * 1000)
        self.seconds += seconds


@pytest.fixture
def clock():
    return TwoHands()


@pytest.fixture
def pauses(clock):
    return Pauses(clock=clock, longest_s=600.0)


def waiting(due_ms, job="j1"):
    return JobRecord(
        id=JobId(job),
        project=ProjectName("default"),
        name=job,
        state=JobState.QUEUED,
        version=5,
        not_before_ms=due_ms,
    )


def test_without_a_jump_the_record_decides(pauses, clock):
    for _ in range(3):
        assert pauses.not_before_ms(waiting(NOW_MS + 10_000)) == NOW_MS + 10_000
        clock.pass_s(7.0)
    assert pauses.not_before_ms(waiting(0)) == 0


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_jump_moves_the_end_along(pauses, clock, jump_ms):
    record = waiting(NOW_MS + 10_000)
    pauses.not_before_ms(record)
    clock.wall_ms += jump_ms
    clock.pass_s(4.0)
    assert pauses.not_before_ms(record) - clock.now_ms() == 6_000
    clock.pass_s(6.0)
    assert pauses.not_before_ms(record) <= clock.now_ms()


def test_a_replica_that_comes_after_the_jump_waits_no_longer_than_any_pause(pauses, clock):
    record = waiting(NOW_MS + 10_000)
    clock.wall_ms -= HOUR_MS
    assert pauses.not_before_ms(record) == clock.now_ms() + 600_000
    clock.pass_s(600.0)
    assert pauses.not_before_ms(record) <= clock.now_ms()


def test_every_pause_is_measured_anew_and_those_that_are_over_are_forgotten(pauses, clock):
    pauses.not_before_ms(waiting(NOW_MS + 10_000))
    clock.pass_s(20.0)
    assert pauses.not_before_ms(waiting(NOW_MS + 50_000)) == NOW_MS + 50_000
    pauses.not_before_ms(waiting(NOW_MS + 10_000, "j2"))
    pauses.keep([JobId("j2")])
    clock.wall_ms -= HOUR_MS
    assert pauses.not_before_ms(waiting(NOW_MS + 50_000)) == clock.now_ms() + 600_000
