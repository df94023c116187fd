"""Why a job has its plan: the same rule as the scheduler's, checked against the scheduler."""

from types import SimpleNamespace

import pytest
from tests.support.plans import resource_plan

from frenzy.cli.choice import placement_order, policy_of, reason, rule
from frenzy.errors import Unreachable
from frenzy_scheduler.core.policies.has import plan_order
from frenzy_shared.domain.plan import PlanSet

MEMORY = {"big": 800, "small": 100, "middle": 400}
PLANS = (
    resource_plan("p1", "big"),
    resource_plan("p2", "middle", devices=2),
    resource_plan("p3", "small"),
    resource_plan("p4", "middle", reduce_bucket_elements=7),
)


def why(name, plans=PLANS, policy="has"):
    chosen = next(plan for plan in plans if plan.id == name)
    return reason(PlanSet(plans=plans, refused=(), kinds_digest=""), chosen, MEMORY, policy)


def test_the_order_is_the_schedulers():
    snapshot = SimpleNamespace(memory_bytes=MEMORY.get)
    assert placement_order(PLANS, MEMORY) == list(plan_order(PLANS, snapshot))
    assert [plan.id for plan in placement_order(PLANS, MEMORY)] == ["p3", "p4", "p1", "p2"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("p3", "of 3 plans alike in count and parallelism, its kind has the smallest memory"),
        ("p4", "its kind has the smallest memory of those whose GPUs were idle"),
        ("p2", "the GPUs of 3 earlier plans were not all idle"),
    ],
)
def test_it_says_why_a_later_plan_was_taken(name, says):
    assert says in why(name)


def test_the_first_plan_and_a_plan_of_an_earlier_planning():
    assert why("p1", PLANS[:2]) == "it is the first plan and its GPUs were idle"
    assert reason(PlanSet(plans=(), refused=(), kinds_digest=""), PLANS[0], MEMORY, "has") == ""


def test_a_kind_that_left_the_cluster_is_no_error():
    order = placement_order((resource_plan("a", "gone"), *PLANS), MEMORY)
    assert [plan.id for plan in order] == ["p3", "p4", "p1", "a", "p2"]


@pytest.mark.parametrize("policy", ["frenzy", "las", "srtf-preemptive", ""])
def test_nothing_is_said_of_the_choice_under_a_policy_that_weighs_preempts_or_is_not_known(policy):
    assert [why(plan.id, policy=policy) for plan in PLANS] == [""] * len(PLANS)


def test_every_policy_is_told_by_its_own_rule():
    assert "weighs" in rule("frenzy")
    assert "first plan whose GPUs are idle" in rule("has")
    assert rule("las") == rule("") == ""


def test_a_scheduler_that_does_not_answer_says_no_policy():
    def policy():
        raise Unreachable("nobody answers")

    assert policy_of(SimpleNamespace(policy=policy)) == ""
