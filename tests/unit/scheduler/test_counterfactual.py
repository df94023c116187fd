"""What would start a job: every claim holds when the cycle is asked again."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.questions import a_question, running_on
from tests.support.scheduling import device, node
from tests.support.scheduling import plan as a_scheduling_plan
from tests.support.simulation import a_plan, waiting

from frenzy_scheduler.core.counterfactual import Relaxed, What, counterfactuals
from frenzy_scheduler.core.decisions import Hold
from frenzy_scheduler.core.policies import policy_named
from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.domain.placement import Unplaceable
from frenzy_shared.domain.project import DeviceQuota, Project

ONE, TWO = a_plan("p1", "rtx", 1, 1.0), a_plan("p2", "rtx", 2, 1.0)


def texts(question, job="j", relaxed=()):
    return [one.text for one in counterfactuals(question, job, relaxed)]


def test_fewer_gpus_than_pinned_are_named_with_the_plan():
    question = a_question(
        {"a": {"rtx": 2}}, [waiting("j", 2, TWO)], [running_on("r", 1, ONE, "a/rtx-0")]
    )
    (found, *_) = counterfactuals(
        question, "j", [Relaxed(pin="resources.gpus", value="2", plans=(ONE,))]
    )
    assert found.text == (
        "would start now with 1 GPU instead of 2: 1 x rtx, ZeRO-1, micro-batch 1 (plan p1)"
    )
    assert (found.what, found.plan, found.after_s) == (What.PIN, "p1", 0.0)


@pytest.mark.parametrize(
    ("pin", "value", "words"),
    [
        ("resources.max_gpus", "2", "with 1 GPU instead of at most 2"),
        ("resources.kinds", "a100", "if kind t4 were allowed"),
        ("resources.exclude_kinds", "t4", "if kind t4 were not excluded"),
        ("resources.gpu_memory", "40GB..", "if gpu_memory (40GB..) allowed t4"),
        ("resources.micro_batch_size", "8", "with micro-batch 2 instead of 8"),
        ("resources.zero_stage", "0", "with ZeRO-3 instead of ZeRO-0"),
        ("precision", "fp32", "with bf16 instead of fp32"),
        ("resources.tensor", "2", "without resources.tensor (2)"),
    ],
)
def test_each_pin_is_relaxed_in_its_own_words(pin, value, words):
    other = a_scheduling_plan("p7", "t4", 1, zero_stage=3, micro_batch=2)
    question = a_question({"a": {"t4": 1}}, [waiting("j", 1, a_plan("p", "a100-40", 1, 1.0))])
    relaxed = Relaxed(pin=pin, value=value, plans=(other,))
    assert texts(question, relaxed=[relaxed]) == [
        f"would start now {words}: 1 x t4, ZeRO-3, micro-batch 2 (plan p7)"
    ]


def test_a_relaxed_pin_that_would_not_help_is_not_claimed():
    question = a_question(
        {"a": {"rtx": 1}}, [waiting("j", 2, TWO)], [running_on("r", 1, ONE, "a/rtx-0")]
    )
    assert texts(question, relaxed=[Relaxed(pin="resources.gpus", value="2", plans=(ONE,))]) == []


def test_the_ends_that_free_enough_are_found_and_no_others():
    """b ends first but is not needed: c's two devices suffice, and a ends last."""
    jobs = [
        running_on("a", 1, ONE, "n/rtx-0", steps=9000),
        running_on("b", 2, a_plan("pt", "t4", 1, 1.0), "n/t4-0", steps=60),
        running_on("c", 3, TWO, "n/rtx-1", "n/rtx-2", steps=840),
    ]
    question = a_question({"n": {"rtx": 3, "t4": 1}}, [waiting("j", 4, TWO)], jobs)
    (found, *_) = counterfactuals(question, "j")
    assert found.text == "would start with 2 x rtx free in ~14 min (job c is predicted to end)"
    assert (found.what, found.after_s) == (What.TIME, 840.0)


def test_several_ends_are_named_and_the_last_counts():
    jobs = [running_on(f"r{n}", n, ONE, f"n/rtx-{n}", steps=100 * n) for n in (1, 2, 3)]
    question = a_question({"n": {"rtx": 4}}, [waiting("j", 4, a_plan("p4", "rtx", 4, 1.0))], jobs)
    assert texts(question) == [
        "would start with 4 x rtx free in ~5.0 min (jobs r1, r2 and 1 more are predicted to end)"
    ]


def test_who_is_behind_is_told_what_holds_without_those_ahead():
    ahead, job = waiting("first", 1, TWO), waiting("j", 2, ONE)
    question = a_question(
        {"n": {"rtx": 2}}, [ahead, job], [running_on("r", 0, TWO, "n/rtx-0", "n/rtx-1", steps=90)]
    )
    assert texts(question)[0] == (
        "would start with 1 x rtx free in ~1.5 min (job r is predicted to end), "
        "if no job ahead of it waited then"
    )


def test_strict_order_is_what_keeps_a_job_that_would_fit():
    ahead, job = waiting("first", 1, TWO), waiting("j", 2, ONE)
    question = a_question({"n": {"rtx": 1}}, [ahead, job], policy="fifo")
    assert "would start now if no other job waited: 1 x rtx are idle" in texts(question)


def test_a_node_that_is_away_is_named_with_what_it_has():
    away = node("b", device("t4-0", "t4"), device("t4-1", "t4"), state=NodeState.LOST)
    question = a_question(
        {"a": {"rtx": 1}}, [waiting("j", 1, a_plan("p", "t4", 2, 1.0))], more=[away]
    )
    assert texts(question) == ["would start now if node b (LOST, 2 x t4) were UP"]


def test_the_least_priority_that_helps_is_found():
    low = replace(waiting("j", 2, ONE), priority=50)
    high = replace(waiting("first", 1, ONE), priority=70)
    question = a_question({"n": {"rtx": 1}}, [high, low])
    (found,) = [one for one in counterfactuals(question, "j") if one.what is What.PRIORITY]
    least = int(found.text.removeprefix("would start now with priority ").split()[0])
    assert 50 < least <= 71
    below = [replace(low, priority=least - 1), high]
    assert replace(question, queue=below).placement_of("j") is None


def test_a_quota_is_named():
    job = waiting("j", 1, ONE)
    projects = (Project(name="default", devices=DeviceQuota(limit=0)),)
    question = replace(a_question({"n": {"rtx": 1}}, [job]), projects=projects)
    assert texts(question) == ["would start now without the quota of project default"]


def test_pins_to_nodes_are_relaxed():
    job = replace(waiting("j", 1, ONE), nodes=frozenset({"elsewhere"}))
    question = a_question({"n": {"rtx": 1}}, [job])
    assert texts(question) == ["would start now if it might use n"]


def test_no_device_helps_a_job_that_waits_for_another_one():
    why = Unplaceable(reason="DependencyNotMet", message="waits for job x")
    job = replace(waiting("j", 1, ONE), blocked=why)
    assert counterfactuals(a_question({"n": {"rtx": 0}}, [job]), "j") == []
    assert counterfactuals(a_question({"n": {"rtx": 1}}, []), "j") == []


COUNTS = st.integers(1, 4)
JOBS = st.lists(
    st.tuples(st.sampled_from(["rtx", "t4"]), COUNTS, st.integers(1, 50)), min_size=1, max_size=5
)


@settings(max_examples=20, deadline=None)
@given(
    layout=st.fixed_dictionaries({"rtx": COUNTS, "t4": COUNTS}),
    held=JOBS,
    queue=JOBS,
    policy=st.sampled_from(["has", "fifo", "backfill", "frenzy", "las"]),
)
def test_whatever_is_claimed_the_cycle_does(layout, held, queue, policy):
    free = {
        kind: [f"n/{kind}-{number}" for number in range(count)] for kind, count in layout.items()
    }
    running = []
    for number, (kind, count, steps) in enumerate(held):
        if len(free[kind]) >= count:
            devices = [free[kind].pop() for _ in range(count)]
            plan = a_plan(f"{kind}{count}", kind, count, 1.0)
            running.append(running_on(f"r{number}", number, plan, *devices, steps=steps))
    jobs = [
        waiting(f"j{number}", 10 + number, a_plan(f"{kind}{count}", kind, count, 1.0), steps=steps)
        for number, (kind, count, steps) in enumerate(queue)
    ]
    question = a_question({"n": layout}, jobs, running, policy=policy)
    relaxed = [Relaxed(pin="resources.gpus", value="9", plans=(ONE, a_plan("t1", "t4", 1, 1.0)))]
    holds = [one for one in question.answer() if isinstance(one, Hold)]
    for hold in holds:
        for claim in counterfactuals(question, hold.job.id, relaxed):
            place = claim.question.placement_of(hold.job.id)
            assert place is not None, claim.text
            assert place.placement.plan == claim.plan
            assert claim.question.policy == policy_named(policy)
