"""Jobs that may run on some nodes only, under every policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scheduling import machines
from tests.support.simulation import a_plan, running, waiting

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place, Resize
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_scheduler.core.snapshot import Statement
from frenzy_shared.domain.job import PendingReason

ALL = [*POLICIES, *PREEMPTIVE]
by_name = pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
ONE, TWO, FOUR = (a_plan(f"p{n}", "rtx", n, 1.0 / n**0.9) for n in (1, 2, 4))
HOUR_MS = 3_600_000


def where(decisions):
    return {
        one.job: set(one.placement.nodes) for one in decisions if isinstance(one, Place | Resize)
    }


@by_name
def test_a_pinned_job_goes_to_its_node_though_another_fits_better(policy):
    layout = {"a": {"rtx": (1, 1)}, "b": {"rtx": (4, 4)}}
    job = waiting("j", 1, ONE, nodes=frozenset("b"))
    assert where(cycle([job], machines(layout), 0, policy)) == {"j": {"b"}}


@by_name
def test_a_gang_is_not_spread_over_nodes_that_it_may_not_use(policy):
    layout = {"a": {"rtx": (2, 2)}, "b": {"rtx": (2, 2)}, "c": {"rtx": (2, 2)}}
    job = waiting("j", 1, FOUR, nodes=frozenset("ac"))
    assert where(cycle([job], machines(layout), 0, policy)) == {"j": {"a", "c"}}
    alone = waiting("j", 1, FOUR, nodes=frozenset("a"))
    (hold,) = cycle([alone], machines(layout), 0, policy)
    why = explain(hold, 0)
    assert why.reason == PendingReason.WAITING_FOR_NODES
    assert why.message == "plan p4 needs 4 x rtx; the nodes that it may use have 2"


@by_name
def test_who_waits_for_a_full_node_keeps_no_other_devices_idle(policy):
    layout = {"a": {"rtx": (2, 0)}, "b": {"rtx": (2, 2)}}
    held = [running("r", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], preemptible=False)]
    pinned = waiting("pinned", 2, TWO, ONE, nodes=frozenset("a"), priority=100, steps=1)
    free = waiting("free", 3, TWO, steps=50)
    decisions = cycle([pinned, free], machines(layout), 0, policy, held)
    if policy.name == "fifo":  # strict: whoever is first waits, and everybody behind waits too
        assert all(isinstance(one, Hold) for one in decisions)
    else:
        assert where(decisions) == {"free": {"b"}}


@by_name
def test_a_pin_without_any_node_waits_and_says_so(policy):
    (hold,) = cycle([waiting("j", 1, ONE, nodes=frozenset())], machines({}), 0, policy)
    assert explain(hold, 0).reason == PendingReason.WAITING_FOR_NODES


pins = st.none() | st.frozensets(st.sampled_from("abc"))


@given(
    st.lists(st.tuples(pins, st.integers(0, 100)), max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100)), max_size=3),
    st.sampled_from(ALL),
)
def test_no_job_ever_gets_a_device_of_another_node(queue, held, policy):
    jobs = [
        waiting(f"w{n}", 10 + n, FOUR, TWO, ONE, nodes=nodes, priority=priority)
        for n, (nodes, priority) in enumerate(queue)
    ]
    stays = [
        running(
            f"r{n}",
            n,
            ONE,
            TWO,
            FOUR,
            devices=[f"{node}/rtx-{n}"],
            nodes=frozenset(node),
            priority=priority,
        )
        for n, (node, priority) in enumerate(held)
    ]
    snapshot = machines({node: {"rtx": (4, 4)} for node in "abc"})
    for job in stays:
        assert Statement(snapshot).allocate("rtx", job.placement.devices)
    allowed = {job.id: job.nodes for job in [*jobs, *stays]}
    for job, nodes in where(cycle(jobs, snapshot, HOUR_MS, policy, stays)).items():
        assert allowed[job] is None or nodes <= allowed[job]
