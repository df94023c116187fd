"""Sia's program against brute force over every allocation of small instances."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduling import machines
from tests.support.simulation import a_plan, running, waiting

from frenzy_scheduler.core.decisions import View

FREE = {"rtx": 4, "t4": 2}
plans = st.lists(
    st.tuples(st.sampled_from(["rtx", "t4"]), st.integers(1, 4), st.integers(1, 50)),
    min_size=1,
    max_size=3,
).map(lambda found: [a_plan(f"p{n}", kind, c, s / 10) for n, (kind, c, s) in enumerate(found)])


def best_by_force(sia, jobs, now_ms):
    """Try every choice of one plan or none for each job."""
    best = 0.0
    options = [[(None, 0.0), *zip(j.plans, sia.costs(j, now_ms), strict=True)] for j in jobs]
    for choice in itertools.product(*options):
        used = dict.fromkeys(FREE, 0)
        for plan, _ in choice:
            if plan is not None:
                used[plan.kind] += plan.device_count
        if all(used[kind] <= FREE[kind] for kind in FREE):
            best = min(best, sum(cost for _, cost in choice))
    return best


@settings(max_examples=15, deadline=None)
@given(st.lists(plans, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_the_program_reaches_the_best_of_all_allocations(sets, informed, one_runs):
    from frenzy_simulator.rivals.sia import Sia

    sia = Sia(informed=informed, gap=0.0)
    queue = [waiting(f"j{n}", n, *found) for n, found in enumerate(sets)]
    held, layout = [], {"a": {"rtx": (4, 4)}, "b": {"t4": (2, 2)}}
    first = sets[0][0]
    if one_runs and first.device_count <= FREE[first.kind]:
        node = {"rtx": "a", "t4": "b"}[first.kind]
        devices = [f"{node}/{first.kind}-{n}" for n in range(first.device_count)]
        held = [running("j0", 0, *sets[0], devices=devices, restart_s=60.0)]
        queue = queue[1:]
        layout[node] = {first.kind: (FREE[first.kind], FREE[first.kind] - first.device_count)}
    view = View(queue=queue, running=held, snapshot=machines(layout), now_ms=600_000)
    chosen = sia.allocate(view)
    jobs = [*queue, *held]
    costs = {
        j.id: dict(zip([p.id for p in j.plans], sia.costs(j, 600_000), strict=True)) for j in jobs
    }
    reached = sum(costs[job][plan.id] for job, plan in chosen.items())
    assert reached == pytest.approx(best_by_force(sia, jobs, 600_000), abs=1e-6)
    assert sia.unsolved == 0
