"""What going on elsewhere costs a job: its own measurement, others', or the measured share."""

import json
from pathlib import Path

import pytest
from tests.support.scheduling import job

from frenzy_scheduler.core.prices import WARM_SHARE, Prices
from frenzy_shared.domain.job import JobState

MEASURED = Path(__file__).resolve().parents[3] / "benchmarks/restart/results/restart.json"


def running(**measured):
    return job(JobState.RUNNING, **measured)


def test_before_anything_was_measured_a_restart_costs_the_prior_and_a_move_a_share_of_it():
    prices = Prices.of([running()], prior_s=30.0)
    assert prices.restart_s(running()) == 30.0
    assert prices.moving_s(running()) == pytest.approx(30.0 * WARM_SHARE)


def test_a_jobs_own_measurements_count_more_than_the_others():
    others = [running(launch_ms=9000, save_ms=1000, move_ms=ms) for ms in (2000, 3000, 7000)]
    prices = Prices.of(others, prior_s=30.0)
    assert (prices.restart_s(running()), prices.moving_s(running())) == (10.0, 3.0)
    own = running(launch_ms=20_000, save_ms=4000, move_ms=5000)
    assert (prices.restart_s(own), prices.moving_s(own)) == (24.0, 5.0)


def test_a_move_is_never_expected_to_cost_more_than_a_restart():
    prices = Prices.of([running(launch_ms=1000, move_ms=60_000)], prior_s=30.0)
    assert prices.moving_s(running(launch_ms=2000, save_ms=0)) == 2.0


def test_the_share_is_the_measured_one():
    """Rounded up to tenths: on a quiet machine starts are a smaller part of a restart."""
    measured = json.loads(MEASURED.read_text())["warm_of_cold"]
    assert measured <= WARM_SHARE <= measured + 0.1
