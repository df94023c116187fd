"""The learning rate by step."""

import pytest

from frenzy_trainer.schedule import Schedule


def rates(**options: object) -> list[float]:
    schedule = Schedule(**{"peak": 1.0, "warmup_steps": 0, "total_steps": 8, **options})  # type: ignore[arg-type]
    return [schedule.learning_rate(step) for step in range(schedule.total_steps)]


def test_constant_is_the_peak_from_the_first_step() -> None:
    assert rates(kind="constant") == [1.0] * 8


def test_warm_up_rises_in_equal_parts_to_the_peak() -> None:
    assert rates(kind="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]


def test_cosine_falls_from_the_peak_towards_zero() -> None:
    values = rates(kind="cosine", warmup_steps=2, total_steps=10)
    assert values[:3] == [0.5, 1.0, 1.0]
    assert values[2:] == sorted(values[2:], reverse=True)
    assert values[6] == pytest.approx(0.5)
    assert 0 < values[-1] < 0.05


def test_a_warm_up_longer_than_the_run_is_only_a_warm_up() -> None:
    assert rates(kind="cosine", warmup_steps=100, total_steps=3) == [0.01, 0.02, 0.03]
