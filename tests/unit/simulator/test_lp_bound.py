"""The bound of time-dependent prices: never above what anybody reaches, and tighter than fast."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulation import a_job, a_plan, a_setup, nodes, simulate

from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_simulator.bound import bound_avg_s
from frenzy_simulator.cluster import parse_cluster
from frenzy_simulator.compare import Bound, Comparison
from frenzy_simulator.generator import generate
from frenzy_simulator.lp_bound import MAX_JOBS, lp_bound_avg_s
from frenzy_simulator.presets import to_sim_jobs
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import Marp, Table

FREE = Scenario(start_s=0.0)
DEVICES = {"rtx": 2, "t4": 3}
shapes = st.lists(
    st.tuples(st.sampled_from(sorted(DEVICES)), st.integers(1, 3), st.integers(1, 40)),
    min_size=1,
    max_size=3,
).map(lambda found: [shape for shape in found if shape[1] <= DEVICES[shape[0]]])
instances = st.lists(
    st.tuples(st.integers(0, 60), shapes.filter(bool)), min_size=1, max_size=4
).map(sorted)


def tables(instance):
    rows, jobs = {}, []
    for number, (at_s, found) in enumerate(instance):
        setup = a_setup(number + 1)
        rows[setup] = tuple(a_plan(f"p{n}", k, c, s / 4) for n, (k, c, s) in enumerate(found))
        jobs.append(a_job(f"j{number}", at_s, 10, setup, sequence=number + 1))
    return rows, jobs


def best_by_force(instance, start_s=0.0):
    """Try every order and plan: each job starts as soon as its devices are free."""
    best = float("inf")
    for choice in itertools.product(*(found for _, found in instance)):
        for order in itertools.permutations(range(len(instance))):
            free = {kind: [0.0] * count for kind, count in DEVICES.items()}
            total = 0.0
            for job in order:
                kind, count, step = choice[job]
                free[kind].sort()
                end = max(free[kind][count - 1], instance[job][0]) + start_s + 10 * step / 4
                free[kind][:count] = [end] * count
                total += end - instance[job][0]
            best = min(best, total / len(instance))
    return best


@settings(max_examples=20, deadline=None)
@given(instances, st.sampled_from([0.0, 5.0, 50.0]))
def test_no_schedule_of_a_small_instance_beats_the_bound(instance, start_s):
    rows, jobs = tables(instance)
    bound_s = lp_bound_avg_s(jobs, Table(rows), DEVICES, Scenario(start_s=start_s))
    best_s = best_by_force(instance, start_s)
    assert 0 < bound_s <= best_s * (1 + 1e-9)
    assert bound_s >= 0.5 * best_s  # and it says something


@pytest.mark.parametrize("policy", [one.name for one in (*POLICIES, *PREEMPTIVE)])
def test_no_policy_beats_the_bound(policy):
    instance = [(n * 7 % 50, [("rtx", 1 + n % 2, 8 + n), ("t4", 1, 30 - n)]) for n in range(12)]
    rows, jobs = tables(sorted(instance))
    outcome = simulate(policy, jobs, nodes(rtx=(1, 2), t4=(1, 3)), rows)
    reached = sum(job.completion_s for job in outcome.done) / len(outcome.done)
    assert lp_bound_avg_s(jobs, Table(rows), DEVICES, FREE) <= reached


@pytest.mark.parametrize("knobs", [{}, {"restart_factor": 0.2}, {"make_before_break": True}])
def test_the_default_policy_never_beats_the_bound_whatever_starts_and_restarts_cost(knobs):
    instance = [(n * 7 % 50, [("rtx", 1 + n % 2, 8 + n), ("t4", 1, 30 - n)]) for n in range(12)]
    rows, jobs = tables(sorted(instance))
    scenario = Scenario(start_s=30.0, **knobs)
    outcome = simulate("frenzy", jobs, nodes(rtx=(1, 2), t4=(1, 3)), rows, scenario=scenario)
    reached = sum(job.completion_s for job in outcome.done) / len(outcome.done)
    assert lp_bound_avg_s(jobs, Table(rows), DEVICES, scenario) <= reached


def test_starts_take_devices_too():
    """Ten jobs one after another: the last waits for nine starts."""
    table = Table({a_setup(): (a_plan("p", "t4", 1, 1.0),)})
    jobs = [a_job(f"j{n}", 0, 10, a_setup()) for n in range(10)]
    bound_s = lp_bound_avg_s(jobs, table, {"t4": 1}, Scenario(start_s=90.0))
    assert 0.95 * 550 < bound_s <= 550


def test_one_job_alone_takes_what_it_takes_alone():
    table = Table({a_setup(): (a_plan("p", "t4", 2, 1.0), a_plan("q", "t4", 1, 1.5))})
    job = a_job("a", 7, 100, a_setup())
    bound_s = lp_bound_avg_s([job], table, {"t4": 2}, Scenario(start_s=10.0))
    assert bound_s == pytest.approx(110.0, rel=1e-3)


def test_equal_jobs_on_one_device_get_nearly_what_fifo_reaches():
    table = Table({a_setup(): (a_plan("p", "t4", 1, 1.0),)})
    jobs = [a_job(f"j{n}", 0, 100, a_setup()) for n in range(3)]
    assert 0.95 * 200 < lp_bound_avg_s(jobs, table, {"t4": 1}, FREE) <= 200.0


CLUSTER = parse_cluster(
    {"nodes": [{"kind": "T4", "gpus": 4}, {"kind": "A100 SXM4 40GB", "gpus": 4}]}
)


def test_it_is_tighter_than_the_fast_bound_on_a_generated_workload():
    kinds = summarize_kinds(CLUSTER)
    model, devices = Marp(kinds), {kind.kind: kind.total for kind in kinds}
    jobs = to_sim_jobs(generate("helios", 40, per_hour=12.0, largest=8, seed=3), model, "T4", 3)
    fast = bound_avg_s(jobs, model, devices, FREE)
    assert lp_bound_avg_s(jobs, model, devices, FREE) > 1.05 * fast


def test_too_many_jobs_fall_back_to_the_fast_bound():
    kinds = summarize_kinds(CLUSTER)
    trace = generate("helios", MAX_JOBS + 1, largest=8, seed=3)
    jobs = to_sim_jobs(trace, Marp(kinds), "T4", 3)
    comparison = Comparison(jobs=jobs, nodes=CLUSTER, policies=["has"], scenario=FREE)
    assert comparison.bound_avg_jct_s(Bound.LP) == comparison.bound_avg_jct_s(Bound.FAST)
    assert comparison.bound_avg_jct_s(Bound.NONE) is None
