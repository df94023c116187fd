"""Which policies the service accepts, and that backfilling works on its records."""

import pytest
from pydantic import ValidationError
from tests.support.scheduler import Bench
from tests.support.simulation import a_plan

from frenzy_scheduler.settings import SchedulerSettings


@pytest.mark.parametrize("name", ["has", "fifo", "srtf", "backfill"])
def test_policies_without_preemption_are_accepted(name):
    assert SchedulerSettings(policy=name).policy == name


@pytest.mark.parametrize("name", ["frenzy", "las", "srtf-preemptive"])
def test_preemptive_ones_are_refused_with_the_reason(name):
    with pytest.raises(ValidationError, match=f"{name} stops running jobs.*frenzy simulate"):
        SchedulerSettings(policy=name)


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
