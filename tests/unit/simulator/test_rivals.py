"""Published schedulers against brute force over their stated objectives on small instances."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduling import machines
from tests.support.simulation import FREE as FREE_STARTS
from tests.support.simulation import a_job, a_plan, a_setup, nodes, running, waiting

from frenzy_scheduler.core.decisions import View
from frenzy_simulator.engine import Simulation
from frenzy_simulator.metrics import summarize
from frenzy_simulator.rivals.gavel import Gavel, options, shares, worth
from frenzy_simulator.rivals.rigid import as_requested
from frenzy_simulator.rivals.sia import Sia
from frenzy_simulator.throughput import Table

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


def best_by_grid(jobs, steps=6):
    """Try all shares of time in sixths; return what the worst-off job has in the best."""
    pairs = [(job.id, plan) for job in jobs for plan in options(job, FREE).values()]
    values = {job.id: worth(job, FREE) for job in jobs}
    best = 0.0
    for times in itertools.product(range(steps + 1), repeat=len(pairs)):
        time, used = dict.fromkeys(values, 0), dict.fromkeys(FREE, 0.0)
        gained = dict.fromkeys(values, 0.0)
        for (job, plan), share in zip(pairs, times, strict=True):
            time[job] += share
            used[plan.kind] += plan.device_count * share / steps
            gained[job] += values[job][plan.kind] * share / steps
        if max(time.values()) <= steps and all(used[kind] <= FREE[kind] for kind in FREE):
            best = max(best, min(gained.values()))
    return best


@settings(max_examples=15, deadline=None)
@given(st.lists(plans, min_size=1, max_size=2))
def test_gavel_serves_the_worst_off_as_well_as_any_shares_of_time(sets):
    jobs = [waiting(f"j{n}", n, *found) for n, found in enumerate(sets)]
    found = shares(jobs, FREE)
    jobs = [job for job in jobs if options(job, FREE)]
    if not jobs:
        assert found == {}
        return
    for job in jobs:
        assert sum(found[job.id, kind] for kind in options(job, FREE)) <= 1 + 1e-9
    for kind, count in FREE.items():
        used = sum(
            options(job, FREE)[kind].device_count * found[job.id, kind]
            for job in jobs
            if kind in options(job, FREE)
        )
        assert used <= count + 1e-9
    reached = min(
        sum(found[job.id, kind] * value for kind, value in worth(job, FREE).items()) for job in jobs
    )
    best = best_by_grid(jobs)
    assert reached >= best * (1 - 1e-3)  # the average counts a little as well
    if len(jobs) == 1:
        assert reached == pytest.approx(max(worth(jobs[0], FREE).values()))


def test_gavel_divides_time_between_equals_round_by_round():
    setup = a_setup()
    rows = {setup: (a_plan("p", "rtx", 2, 1.0),)}
    jobs = [a_job(name, 0, 3600, setup, sequence=n, gpus=2) for n, name in enumerate("ab", 1)]
    simulation = Simulation(
        jobs=jobs,
        nodes=nodes(rtx=(1, 2)),
        model=Table(rows),
        strategy=Gavel(),
        scenario=FREE_STARTS,
    )
    outcome = simulation.run()
    ends = sorted(job.finish_s for job in outcome.done)
    assert ends[1] == pytest.approx(7200, abs=1)
    assert ends[0] > 7200 - 2 * 360
    assert 15 <= outcome.preemptions <= 20


def test_sia_leaves_a_starting_job_alone_and_remembers_its_restarts():
    quick, slow = a_plan("quick", "rtx", 1, 1.0), a_plan("slow", "t4", 1, 2.0)
    held = {"devices": ["b/t4-0"], "restart_s": 60.0, "steps": 1e6}
    sia = Sia()

    def chosen(now_ms, placed_ms):
        job = running("j", 1, slow, quick, placed_ms=placed_ms, **held)
        layout = {"a": {"rtx": (4, 4)}, "b": {"t4": (2, 1)}}
        view = View(queue=[], running=[job], snapshot=machines(layout), now_ms=now_ms)
        return sia.allocate(view)["j"].id

    assert chosen(59_000, 0) == "slow"
    assert chosen(600_000, 0) == "quick"
    # Having been restarted at every look, it has lost too much time to be moved once more.
    assert [chosen(t * 70_000, t * 70_000 - 60_000) for t in range(9, 20)][-1] == "slow"


def test_rigid_rivals_keep_the_count_that_users_asked_for():
    plans = [a_plan(f"{kind}{n}", kind, n, 1.0 / n) for kind in ("rtx", "t4") for n in (2, 4)]
    faster = a_plan("faster", "rtx", 2, 0.1)
    assert [plan.id for plan in as_requested([*plans, faster], 3)] == ["faster", "t42"]
    assert {plan.device_count for plan in as_requested(plans, 1)} == {2}
    assert {plan.device_count for plan in as_requested(plans, 64)} == {4}


def test_a_solvers_time_limit_is_reported():
    setup = a_setup()
    rows = {setup: tuple(a_plan(f"p{n}", "rtx", n, 1.0 / n) for n in (1, 2, 3))}
    jobs = [a_job(f"j{n}", 0, 100, setup, sequence=n, gpus=2) for n in range(1, 4)]
    simulation = Simulation(
        jobs=jobs,
        nodes=nodes(rtx=(1, 4)),
        model=Table(rows),
        strategy=Sia(time_limit_s=0.0),
        scenario=FREE_STARTS,
    )
    assert summarize(simulation.run()).unsolved > 0
