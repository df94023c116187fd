"""Properties of every policy on random clusters and queues."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.scheduling import machines, plan, queued

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE
from frenzy_shared.domain.job import PendingReason

KINDS = ["t4", "rtx", "a100-80"]
counts = st.integers(0, 4).flatmap(lambda n: st.tuples(st.just(4), st.just(n)))
layouts = st.dictionaries(
    st.sampled_from("abcdef"),
    st.dictionaries(st.sampled_from(KINDS), counts, min_size=1),
    min_size=1,
)
plans = st.builds(
    lambda number, kind, count, single: plan(f"p{number}", kind, count, single_node=single),
    st.integers(0, 99),
    st.sampled_from([*KINDS, "h100"]),
    st.integers(1, 9),
    st.booleans(),
)
queues = st.lists(
    st.tuples(st.lists(plans, max_size=4), st.sampled_from([0, 0, 0, 5])), max_size=8
).map(
    lambda jobs: [
        queued(f"job-{i}", i, *unique(ps), not_before_ms=t) for i, (ps, t) in enumerate(jobs)
    ]
)
policies = st.sampled_from([*POLICIES, *PREEMPTIVE])


def unique(plans):
    """Plan ids are unique within a job."""
    return [replace(plan, id=f"p{number}") for number, plan in enumerate(plans)]


@given(layouts, queues, policies)
def test_no_device_is_given_twice_and_every_gang_is_whole(layout, queue, policy):
    decisions = cycle(queue, machines(layout), 1, policy)
    assert Counter(d.job if isinstance(d, Place) else d.job.id for d in decisions) == Counter(
        job.id for job in queue
    )
    jobs = {job.id: job for job in queue}
    given_out = set()
    for decision in decisions:
        if isinstance(decision, Place):
            chosen = next(p for p in jobs[decision.job].plans if p.id == decision.placement.plan)
            devices = [ref.key for ref in decision.placement.devices]
            assert len(devices) == chosen.device_count
            assert given_out.isdisjoint(devices)
            assert not chosen.single_node or len(decision.placement.nodes) == 1
            given_out.update(devices)
    idle = {
        f"{name}/{kind}-{number}"
        for name, kinds in layout.items()
        for kind, (count, free) in kinds.items()
        for number in range(count - free, count)
    }
    assert given_out <= idle


@given(layouts, queues, policies, st.randoms(use_true_random=False))
def test_the_same_input_gives_the_same_decisions_in_any_order_of_the_queue(
    layout, queue, policy, random
):
    shuffled = list(queue)
    random.shuffle(shuffled)
    first = cycle(queue, machines(layout), 1, policy)
    assert cycle(shuffled, machines(layout), 1, policy) == first


@given(layouts, queues, policies)
def test_every_hold_can_be_explained_and_positions_count_up(layout, queue, policy):
    holds = [d for d in cycle(queue, machines(layout), 1, policy) if isinstance(d, Hold)]
    assert [hold.position for hold in holds] == list(range(1, len(holds) + 1))
    for hold in holds:
        why = explain(hold, 1)
        assert PendingReason(why.reason)
        assert why.message


@given(layouts, queues)
def test_has_leaves_nobody_waiting_who_could_run(layout, queue):
    """Skipping is complete: after the cycle no eligible job's plan fits what is left."""
    has = POLICIES[0]
    for decision in cycle(queue, machines(layout), 1, has):
        if isinstance(decision, Hold) and decision.job.not_before_ms <= 1:
            assert has.place(decision.job, decision.after) is None
