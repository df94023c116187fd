"""Two days of a cluster on real servers and a moved clock: nothing grows once its bounds are full.

The whole of it, with 50,000 jobs, is ``python -m benchmarks.soak``.
"""

import pytest
from benchmarks.soak.__main__ import live

pytestmark = pytest.mark.long

HOURS, JOBS, KEPT = 32, 160, 20
# Few jobs make small numbers; something kept of every job would grow by 15 % here.
MOST_GROWTH = 0.08


async def test_nothing_grows_after_the_first_day(tmp_path):
    found = await live(tmp_path, HOURS, JOBS, KEPT, seed=11)
    assert found["archived"] + sum(found["counts"].values()) == JOBS
    assert sum(found["counts"].values()) <= KEPT
    assert found["growth"]["scheduler, objects"] < MOST_GROWTH
    grown = {name: share for name, share in found["growth"].items() if share > MOST_GROWTH}
    assert grown == {}
