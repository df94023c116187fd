"""Only a rank's own work is stretched."""

import pytest

from frenzy_trainer.pacing import Pacer


class Time:
    """The two clocks that a pacer reads, and the sleep that it asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = self.cpu = 0.0
        self.slept: list[float] = []
        monkeypatch.setattr("time.perf_counter", lambda: self.wall)
        monkeypatch.setattr("time.thread_time", lambda: self.cpu)
        monkeypatch.setattr("time.sleep", self.slept.append)

    def step(self, pacer: Pacer, *, work: float, wait: float = 0.0) -> None:
        pacer.start()
        self.wall += work + wait
        self.cpu += work
        pacer.finish()


def test_work_takes_longer_by_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pacer = Pacer(0.25)
    time.step(pacer, work=2.0)
    time.step(pacer, work=1.0)
    assert time.slept == [6.0, 3.0]


def test_waiting_for_others_counts_as_time_already_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    time.step(Pacer(0.25), work=2.0, wait=5.0)
    time.step(Pacer(0.25), work=2.0, wait=50.0)
    assert time.slept == [1.0]


def test_the_hosts_speed_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    time.step(Pacer(1.0), work=2.0)
    time.step(Pacer(8.0), work=2.0)
    assert time.slept == []
