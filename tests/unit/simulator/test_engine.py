"""Simulations worked out by hand, and what must hold in any."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.simulation import FREE, a_job, a_plan, a_setup, ends, nodes, simulate

from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_simulator.metrics import summarize
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.users import ManualUsers

ONE, TWO, THREE = a_setup(1), a_setup(2), a_setup(3)
NAMES = [policy.name for policy in (*POLICIES, *PREEMPTIVE)]


def test_one_job_takes_its_start_and_its_steps():
    outcome = simulate(
        "has",
        [a_job("j", 5.0, 100, ONE)],
        nodes(t4=(1, 1)),
        {ONE: (a_plan("p", "t4", 1, 2.0),)},
        Scenario(start_s=30.0),
    )
    (job,) = outcome.done
    assert (job.submit_s, job.finish_s, job.wait_s) == (5.0, 5 + 30 + 200, 0.0)
    assert (job.alone_s, job.device_s, job.mean_open) == (230.0, 230.0, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_urgent_job_comes_before_the_others_that_wait(name):
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),)}
    urgent = replace(a_job("urgent", 2, 50, ONE), priority=100)
    jobs = [a_job("a", 0, 20, ONE), a_job("b", 1, 50, ONE), urgent]
    assert list(ends(simulate(name, jobs, nodes(t4=(1, 1)), rows)))[-1] == "b"


def test_jobs_on_one_device_queue_up_in_order_of_arrival():
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),)}
    jobs = [a_job("a", 0, 100, ONE), a_job("b", 1, 10, ONE), a_job("c", 2, 10, ONE)]
    outcome = simulate("has", jobs, nodes(t4=(1, 1)), rows)
    assert ends(outcome) == {"a": 100.0, "b": 110.0, "c": 120.0}
    summary = summarize(outcome)
    assert summary.avg_jct_s == pytest.approx((100 + 109 + 118) / 3)
    assert summary.avg_wait_s == pytest.approx((0 + 99 + 108) / 3)
    assert (summary.makespan_s, summary.utilization) == (120.0, 1.0)


def test_fifo_lets_a_wide_head_block_and_has_skips_it():
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),), TWO: (a_plan("q", "t4", 2, 1.0),)}
    jobs = [a_job("a", 0, 100, ONE), a_job("wide", 1, 50, TWO), a_job("b", 2, 10, ONE)]
    cluster = nodes(t4=(1, 2))
    assert ends(simulate("fifo", jobs, cluster, rows)) == {"a": 100.0, "wide": 150.0, "b": 160.0}
    assert ends(simulate("has", jobs, cluster, rows)) == {"a": 100.0, "b": 12.0, "wide": 150.0}


def test_backfill_starts_what_ends_before_the_heads_turn_and_nothing_longer():
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),), TWO: (a_plan("q", "t4", 2, 1.0),)}
    jobs = [
        a_job("a", 0, 100, ONE),
        a_job("wide", 1, 50, TWO),
        a_job("long", 2, 99, ONE),
        a_job("short", 3, 97, ONE),
    ]
    found = ends(simulate("backfill", jobs, nodes(t4=(1, 2)), rows))
    assert found == {"a": 100.0, "short": 100.0, "wide": 150.0, "long": 249.0}


def test_preemptive_srtf_stops_a_long_job_and_charges_the_restart():
    """The long job trains 0-10, yields for 20 s, then pays 2 x 50 bytes / 10 bytes/s + 5 s."""
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),)}
    jobs = [a_job("long", 0, 100, ONE), a_job("short", 15, 15, ONE)]
    scenario = Scenario(start_s=5.0, storage_bytes_s=10.0)
    outcome = simulate("srtf-preemptive", jobs, nodes(t4=(1, 1)), rows, scenario, size_bytes=50)
    assert ends(outcome) == {"short": 15 + 5 + 15.0, "long": 35 + 15 + 90.0}
    long = next(job for job in outcome.done if job.id == "long")
    assert (long.preemptions, long.wait_s, long.restart_device_s) == (1, 20.0, 15.0)


def test_frenzy_grows_a_job_into_devices_that_fall_idle():
    plans = (a_plan("p4", "t4", 4, 1.0), a_plan("p2", "t4", 2, 1.6))
    jobs = [a_job("a", 0, 1000, ONE), a_job("b", 0, 100, TWO)]
    outcome = simulate("frenzy", jobs, nodes(t4=(1, 4)), {ONE: plans, TWO: plans[1:]})
    found = ends(outcome)
    assert found == {"b": 160.0, "a": 160 + 900.0}  # a does 100 steps on two devices, then four
    assert outcome.preemptions == 1


def test_a_job_that_fits_nowhere_is_reported_and_holds_up_nobody():
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),), TWO: ()}
    outcome = simulate(
        "fifo", [a_job("big", 0, 10, TWO), a_job("a", 1, 10, ONE)], nodes(t4=(1, 1)), rows
    )
    assert (outcome.never, ends(outcome)) == (["big"], {"a": 11.0})
    assert summarize(outcome).infeasible == 1


def test_a_node_failure_sets_a_job_back_to_its_last_checkpoint():
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),)}
    job = [a_job("a", 0, 20_000, ONE)]
    scenario = Scenario(
        start_s=0.0, node_mtbf_s=5000.0, node_repair_s=100.0, checkpoint_interval_s=1000.0, seed=3
    )
    outcome = simulate("has", job, nodes(t4=(1, 1)), rows, scenario)
    failures = outcome.node_failures
    assert failures >= 1
    lost_s = ends(outcome)["a"] - 20_000 - 100.0 * failures
    assert 0 < lost_s < 1000.0 * failures


def test_early_ends_and_prediction_errors_are_drawn_per_job_and_repeatable():
    rows = {ONE: (a_plan("p", "t4", 1, 1.0),)}
    jobs = [a_job(f"j{n}", 0, 1000, ONE) for n in range(40)]
    scenario = Scenario(start_s=0.0, early_end_share=0.5, prediction_sigma=0.2, seed=1)
    first = simulate("has", jobs, nodes(t4=(40, 1)), rows, scenario)
    again = simulate("has", jobs, nodes(t4=(40, 1)), rows, scenario)
    assert first.done == again.done
    times = [job.completion_s for job in first.done]
    assert sum(time < 500 for time in times) >= 5
    assert max(times) > 1050


def test_split_gangs_are_slower_by_the_stated_share():
    rows = {ONE: (a_plan("wide", "t4", 2, 1.0),)}
    scenario = Scenario(start_s=0.0, split_slowdown=0.5)
    packed = simulate("has", [a_job("a", 0, 100, ONE)], nodes(t4=(1, 2)), rows, scenario)
    split = simulate("has", [a_job("a", 0, 100, ONE)], nodes(t4=(2, 1)), rows, scenario)
    assert (ends(packed)["a"], ends(split)["a"]) == (100.0, 100.0)  # one device a node: no choice


def test_people_run_out_of_memory_notice_and_ask_for_more():
    """Only four devices hold the job; who asks for one meets two failures first."""
    rows = {ONE: (a_plan("p4", "t4", 4, 1.0),)}
    cluster = nodes(t4=(1, 4))
    users = ManualUsers(
        kinds=summarize_kinds(cluster), under_share=0.0, over_share=0.0, notice_s=60, think_s=10
    )
    outcome = simulate("has", [a_job("a", 0, 100, ONE, gpus=1)], cluster, rows, users=users)
    (job,) = outcome.done
    assert job.ooms == 2
    assert job.completion_s > 2 * 60 + 100
    assert job.device_s == pytest.approx(60 * 1 + 60 * 2 + 100 * 4)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 400), st.sampled_from([ONE, TWO, THREE])),
        min_size=1,
        max_size=12,
    ),
    failing=st.booleans(),
    moving=st.booleans(),
)
def test_every_job_ends_once_and_no_faster_than_alone(name, arrivals, failing, moving):
    rows = {
        ONE: (a_plan("p1", "t4", 1, 1.0), a_plan("p2", "t4", 2, 0.6)),
        TWO: (a_plan("q", "a100", 4, 0.5), a_plan("q1", "a100", 1, 1.5)),
        THREE: (a_plan("r", "t4", 4, 0.7), a_plan("r2", "a100", 2, 0.4)),
    }
    arrivals.sort(key=lambda one: one[0])
    jobs = [a_job(f"j{n}", at, steps, s) for n, (at, steps, s) in enumerate(arrivals)]
    scenario = Scenario(
        start_s=3.0,
        node_mtbf_s=900.0 if failing else 0.0,
        node_repair_s=50.0,
        make_before_break=moving,
        tick_s=20.0,
    )
    outcome = simulate(name, jobs, nodes(t4=(2, 2), a100=(1, 4)), rows, scenario)
    assert sorted(job.id for job in outcome.done) == sorted(job.id for job in jobs)
    assert not outcome.unfinished
    for job in outcome.done:
        assert job.completion_s >= job.alone_s - 0.01


def test_the_engine_reports_progress_up_to_all():
    from frenzy_scheduler.core.policies import policy_named
    from frenzy_simulator.engine import Simulation
    from frenzy_simulator.throughput import Table

    seen = []
    Simulation(
        jobs=[a_job("a", 0, 10, ONE), a_job("b", 1, 10, ONE)],
        nodes=nodes(t4=(1, 1)),
        model=Table({ONE: (a_plan("p", "t4", 1, 1.0),)}),
        strategy=policy_named("has"),
        scenario=FREE,
    ).run(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2, 2)
