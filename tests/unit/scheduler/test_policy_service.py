"""Which policies the service accepts, and that backfilling works on its records."""

import pytest
from pydantic import ValidationError
from tests.support.scheduler import Bench
from tests.support.simulation import a_plan

from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_scheduler.settings import SchedulerSettings


@pytest.mark.parametrize("policy", [*POLICIES, *PREEMPTIVE], ids=lambda policy: policy.name)
def test_every_policy_of_the_core_can_be_set(policy):
    assert SchedulerSettings(policy=policy.name).strategy() == policy


def test_a_rival_of_the_simulator_cannot():
    with pytest.raises(ValidationError, match="policy"):
        SchedulerSettings(policy="sia")


def test_frenzy_keeps_jobs_for_as_long_as_the_settings_say():
    assert SchedulerSettings(policy="frenzy", min_run_factor=2).strategy().min_run_factor == 2


async def test_backfill_reserves_by_the_predicted_end_of_a_placed_job():
    """A runs for 1,000 s on one of two devices. Wide waits for both; short fits before, long not."""
    one = a_plan("p1", "rtx", 1, 1.0)
    async with Bench(policy="backfill") as bench:
        await bench.node("n1", devices=2)
        await bench.queue("a", one)
        await bench.turn()
        await bench.queue("wide", a_plan("p2", "rtx", 2, 1.0))
        await bench.queue("long", a_plan("p1", "rtx", 1, 1.5))
        await bench.turn()
        assert await bench.state("long") == "QUEUED"
        assert "would delay job wide" in (await bench.store.pending("long"))["message"]
        await bench.queue("short", a_plan("p1", "rtx", 1, 0.5))
        await bench.turn()
        assert await bench.state("short") == "RESERVED"
        assert await bench.state("wide") == "QUEUED"
