"""Priority and fair share in every policy: who goes first, who may stop whom, who never starves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scheduling import machines, plan, queued
from tests.support.simulation import a_plan, running, waiting

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place, Preempt, Resize
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE, policy_named
from frenzy_scheduler.core.urgency import POINT_MS, turn_ms, weight

HOUR_MS = 3_600_000
ONE_IDLE = {"a": {"rtx": (1, 1)}}
ONE = a_plan("p1", "rtx", 1, 1.0)


def first(policy, *jobs, layout=ONE_IDLE, now_ms=0):
    decisions = cycle(jobs, machines(layout), now_ms, policy)
    return [decision.job for decision in decisions if isinstance(decision, Place)]


@pytest.mark.parametrize("policy", [*POLICIES, *PREEMPTIVE], ids=lambda policy: policy.name)
def test_the_higher_priority_goes_first_though_it_came_later(policy):
    early = waiting("early", 1, ONE, priority=50)
    late = waiting("late", 2, ONE, priority=60, arrived_ms=1)
    assert first(policy, early, late) == ["late"]


@pytest.mark.parametrize("policy", [*POLICIES, *PREEMPTIVE], ids=lambda policy: policy.name)
def test_of_equal_priority_the_project_that_had_less_goes_first(policy):
    served = waiting("served", 1, ONE, standing=0.8)
    lacking = waiting("lacking", 2, ONE, standing=1.2, arrived_ms=1)
    assert first(policy, served, lacking) == ["lacking"]


@pytest.mark.parametrize("name", ["has", "fifo", "backfill"])
def test_a_point_of_priority_is_worth_an_hour_of_waiting(name):
    policy = policy_named(name)
    old = waiting("old", 1, ONE, priority=50)
    for hours, expected in ((9, "new"), (11, "old")):
        new = waiting("new", 2, ONE, priority=60, arrived_ms=hours * HOUR_MS)
        assert first(policy, old, new, now_ms=hours * HOUR_MS) == [expected]


def test_equal_urgency_is_plain_arrival_order():
    jobs = [queued(f"j{n}", n, plan("p", "rtx", 1)) for n in range(5)]
    assert [job.turn_ms for job in jobs] == [0.0] * 5
    assert first(policy_named("has"), *reversed(jobs)) == ["j0"]


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0.5**0.5, 2**0.5))
def test_weight_and_place_in_line_agree(one, other, standing):
    assert weight(50, 1.0) == 1.0
    assert (weight(one, standing) < weight(other, standing)) == (one < other)
    ahead = turn_ms(0, one, standing) - turn_ms(0, other, standing)
    assert ahead == pytest.approx((other - one) * POINT_MS)
    assert abs(turn_ms(0, 50, standing)) <= 10 * POINT_MS + 1


def test_nobody_is_overtaken_without_end():
    """A job of priority 0 waits while one of priority 100 arrives every hour, for 100 hours."""
    policy = policy_named("has")
    low = waiting("low", 1, ONE, priority=0)
    for hour in range(1, 103):
        high = waiting(f"high-{hour}", hour + 1, ONE, priority=100, arrived_ms=hour * HOUR_MS)
        if first(policy, low, high, now_ms=hour * HOUR_MS) == ["low"]:
            break
    assert hour == 100


def test_frenzy_lets_age_outweigh_priority():
    old = waiting("old", 1, ONE, priority=0)
    frenzy, now_ms = policy_named("frenzy"), 300 * HOUR_MS
    new = waiting("new", 2, ONE, priority=100, arrived_ms=now_ms)
    assert first(frenzy, old, new, now_ms=now_ms) == ["old"]


@pytest.mark.parametrize("policy", PREEMPTIVE, ids=lambda policy: policy.name)
def test_a_job_is_not_stopped_for_a_shorter_one_of_lower_priority(policy):
    held = [running("long", 1, ONE, devices=["a/rtx-0"], steps=1e6, attained=1e6, priority=51)]
    layout = {"a": {"rtx": (1, 0)}}
    short = waiting("short", 2, ONE, steps=1, priority=50, arrived_ms=HOUR_MS)
    (decision,) = cycle([short], machines(layout), HOUR_MS, policy, held)
    assert isinstance(decision, Hold)
    equal = waiting("short", 2, ONE, steps=1, priority=51, arrived_ms=HOUR_MS)
    assert Preempt(job="long", version=0) in cycle([equal], machines(layout), HOUR_MS, policy, held)


@pytest.mark.parametrize("policy", PREEMPTIVE, ids=lambda policy: policy.name)
def test_a_job_is_stopped_for_one_of_higher_priority(policy):
    held = [running("low", 1, ONE, devices=["a/rtx-0"], steps=1e4, attained=1e6, priority=0)]
    high = waiting("high", 2, ONE, steps=1e4, priority=100, arrived_ms=HOUR_MS)
    decisions = cycle([high], machines({"a": {"rtx": (1, 0)}}), HOUR_MS, policy, held)
    assert [type(decision) for decision in decisions] == [Preempt, Place]


jobs_held = st.lists(
    st.tuples(st.integers(0, 100), st.floats(1, 1e6), st.booleans()), min_size=1, max_size=6
)
jobs_waiting = st.lists(st.tuples(st.integers(0, 100), st.floats(1, 1e6)), min_size=1, max_size=6)
counts = [a_plan(f"p{n}", "rtx", n, 1.0 / n**0.9) for n in (1, 2, 4)]


@given(jobs_held, jobs_waiting, st.sampled_from(PREEMPTIVE))
def test_only_higher_or_equal_priorities_gain_from_a_stop(held_jobs, waiting_jobs, policy):
    held = [
        running(
            f"r{n}",
            n,
            counts[wide],
            *counts,
            devices=[f"a/rtx-{2 * n}", f"a/rtx-{2 * n + 1}"][: 1 + wide],
            steps=steps,
            attained=steps,
            priority=priority,
        )
        for n, (priority, steps, wide) in enumerate(held_jobs)
    ]
    queue = [
        waiting(f"w{n}", 10 + n, *counts, steps=steps, priority=priority)
        for n, (priority, steps) in enumerate(waiting_jobs)
    ]
    snapshot = machines({"a": {"rtx": (12, 0)}})
    decisions = cycle(queue, snapshot, HOUR_MS, policy, held)
    priorities = {job.id: job.priority for job in [*held, *queue]}
    before = {job.id: job.plan for job in held}
    gained = [0]
    for decision in decisions:
        if isinstance(decision, Place):
            gained.append(priorities[decision.job])
        elif isinstance(decision, Resize):
            if len(decision.placement.devices) > before[decision.job].device_count:
                gained.append(priorities[decision.job])
    for decision in decisions:
        if isinstance(decision, Preempt):
            assert priorities[decision.job] <= max(gained)
