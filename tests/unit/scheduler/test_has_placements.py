"""Placements of policy ``has``, each worked out by hand from docs/explanation/has.md."""

import pytest
from tests.support.scheduling import machines, plan, queued

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Place
from frenzy_scheduler.core.policies import policy_named

# Each case: the cluster as {node: {kind: (devices, idle)}} (idle ones have the highest numbers),
# the job's plans in MARP's order, and the devices that must be chosen, in rank order.
CASES = {
    # a has 4 idle, b 2, c 1: b is the tightest that holds 2.
    "the node with the fewest idle devices that holds the plan": (
        {"a": {"rtx": (4, 4)}, "b": {"rtx": (4, 2)}, "c": {"rtx": (4, 1)}},
        [plan("p1", "rtx", 2)],
        ["b/rtx-2", "b/rtx-3"],
    ),
    # b and c both have exactly 2: the name decides.
    "equally tight nodes go by name": (
        {"c": {"rtx": (2, 2)}, "b": {"rtx": (2, 2)}, "a": {"rtx": (4, 4)}},
        [plan("p1", "rtx", 2)],
        ["b/rtx-0", "b/rtx-1"],
    ),
    # Among 3 idle devices of the only node, the lowest ids.
    "devices of a node go by id": (
        {"a": {"rtx": (4, 3)}},
        [plan("p1", "rtx", 2)],
        ["a/rtx-1", "a/rtx-2"],
    ),
    # A node that is partly used beats a whole one, which stays whole for a wide gang.
    "a broken node before a whole one": (
        {"a": {"rtx": (8, 8)}, "b": {"rtx": (8, 7)}},
        [plan("p1", "rtx", 1)],
        ["b/rtx-1"],
    ),
    # MARP prefers p1, but only 3 rtx are idle: p2 is the first that can be served.
    "the first plan that idle devices can serve": (
        {"a": {"rtx": (4, 3), "a100-80": (2, 1)}},
        [plan("p1", "rtx", 4), plan("p2", "a100-80", 1)],
        ["a/a100-80-1"],
    ),
    # Both plans fit. MARP's order decides, though p2 would need fewer devices.
    "MARP's order comes before the number of devices": (
        {"a": {"rtx": (4, 4), "a100-80": (2, 2)}},
        [plan("p1", "rtx", 4), plan("p2", "a100-80", 1)],
        ["a/rtx-0", "a/rtx-1", "a/rtx-2", "a/rtx-3"],
    ),
    # Same count, same parallelism: the 24 GiB kind before the 80 GiB kind that MARP named first.
    "the smallest sufficient kind among plans that are otherwise equal": (
        {"a": {"a100-80": (2, 2)}, "b": {"rtx": (2, 2)}},
        [plan("big", "a100-80", 1), plan("small", "rtx", 1)],
        ["b/rtx-0"],
    ),
    # The bucket size is tuned per kind and does not make plans different.
    "bucket sizes do not make plans unequal": (
        {"a": {"a100-80": (2, 2)}, "b": {"rtx": (2, 2)}},
        [plan("big", "a100-80", 1, bucket=9000), plan("small", "rtx", 1, bucket=50)],
        ["b/rtx-0"],
    ),
    # Another micro-batch is another plan: MARP's order stands.
    "another micro-batch is another plan": (
        {"a": {"a100-80": (2, 2)}, "b": {"rtx": (2, 2)}},
        [plan("big", "a100-80", 1, micro_batch=4), plan("small", "rtx", 1, micro_batch=1)],
        ["a/a100-80-0"],
    ),
    # The group {big, small} stands where its best member stood, before the two-device plan.
    "alike plans stand where the best of them stood": (
        {"a": {"a100-80": (1, 1), "rtx": (1, 1), "t4": (2, 2)}},
        [plan("big", "a100-80", 1), plan("wide", "t4", 2), plan("small", "rtx", 1)],
        ["a/rtx-0"],
    ),
    # The small kind has none idle: the next kind of the same plan.
    "the next larger kind when the smallest has none idle": (
        {"a": {"rtx": (2, 0), "a100-40": (2, 2), "a100-80": (2, 2)}},
        [plan("p80", "a100-80", 2), plan("p24", "rtx", 2), plan("p40", "a100-40", 2)],
        ["a/a100-40-0", "a/a100-40-1"],
    ),
    # No node holds 5. c has 4 idle (most), then a and b 2 each: a by name, one device of it.
    "split over the nodes with most idle devices": (
        {"a": {"rtx": (2, 2)}, "b": {"rtx": (2, 2)}, "c": {"rtx": (4, 4)}},
        [plan("p1", "rtx", 5)],
        ["c/rtx-0", "c/rtx-1", "c/rtx-2", "c/rtx-3", "a/rtx-0"],
    ),
    # 3 + 3 + 1: greedy uses three nodes only because two cannot hold 7.
    "as few nodes as the greedy order gives": (
        {"a": {"rtx": (1, 1)}, "b": {"rtx": (3, 3)}, "c": {"rtx": (3, 3)}, "d": {"rtx": (2, 2)}},
        [plan("p1", "rtx", 7)],
        ["b/rtx-0", "b/rtx-1", "b/rtx-2", "c/rtx-0", "c/rtx-1", "c/rtx-2", "d/rtx-0"],
    ),
    # One node of 4 holds the plan, although two of 3 have more idle in sum.
    "one node before any split": (
        {"a": {"rtx": (3, 3)}, "b": {"rtx": (3, 3)}, "c": {"rtx": (4, 4)}},
        [plan("p1", "rtx", 4)],
        ["c/rtx-0", "c/rtx-1", "c/rtx-2", "c/rtx-3"],
    ),
    # Tensor parallelism stays on a node: 2 + 2 idle do not serve 4, so the second plan.
    "a single-node plan is never split": (
        {"a": {"rtx": (2, 2), "a100-80": (1, 1)}, "b": {"rtx": (2, 2)}},
        [plan("tp", "rtx", 4, single_node=True, tensor=4), plan("p2", "a100-80", 1)],
        ["a/a100-80-0"],
    ),
    # 4 idle rtx on two nodes serve p1 split, before p2 whole on one node: plan order first.
    "a split of a better plan before a whole worse plan": (
        {"a": {"rtx": (2, 2)}, "b": {"rtx": (2, 2)}, "c": {"a100-80": (1, 1)}},
        [plan("p1", "rtx", 4), plan("p2", "a100-80", 1)],
        ["a/rtx-0", "a/rtx-1", "b/rtx-0", "b/rtx-1"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_hand_computed_placement(name: str) -> None:
    layout, plans, expected = CASES[name]
    (decision,) = cycle([queued("j", 1, *plans)], machines(layout), 0, policy_named("has"))
    assert isinstance(decision, Place)
    assert [ref.key for ref in decision.placement.devices] == expected
    assert decision.placement.kind == expected[0].partition("/")[2].rpartition("-")[0]


def test_three_jobs_in_arrival_order_with_skipping() -> None:
    """Worked by hand: a has 4 idle, b 2.

    first wants 1: b is tightest (2), takes b/0. second wants 6: 5 are left, so it is skipped.
    third wants 4: a holds it. fourth wants 2: one is left (b/1), so it waits at position 2.
    """
    snapshot = machines({"a": {"rtx": (4, 4)}, "b": {"rtx": (2, 2)}})
    queue = [
        queued("third", 3, plan("p", "rtx", 4)),
        queued("first", 1, plan("p", "rtx", 1)),
        queued("fourth", 4, plan("p", "rtx", 2)),
        queued("second", 2, plan("p", "rtx", 6)),
    ]
    first, second, third, fourth = cycle(queue, snapshot, 0, policy_named("has"))
    assert [ref.key for ref in first.placement.devices] == ["b/rtx-0"]
    assert (second.job.id, second.position) == ("second", 1)
    assert [ref.key for ref in third.placement.devices] == [f"a/rtx-{n}" for n in range(4)]
    assert (fourth.job.id, fourth.position) == ("fourth", 2)


def test_the_tie_of_two_jobs_with_one_number_goes_by_id() -> None:
    snapshot = machines({"a": {"rtx": (1, 1)}})
    queue = [queued("b", 1, plan("p", "rtx", 1)), queued("a", 1, plan("p", "rtx", 1))]
    placed, held = cycle(queue, snapshot, 0, policy_named("has"))
    assert (placed.job, held.job.id) == ("a", "b")
