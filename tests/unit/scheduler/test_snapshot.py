import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scheduling import machines

from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.ids import NodeId


def contents(snapshot: Snapshot):
    """Everything that a policy can see."""
    return {
        kind: (
            snapshot.idle(kind),
            snapshot.total(kind),
            snapshot.most_idle(kind),
            list(snapshot.nodes_by_idle(kind)),
            [snapshot.devices(kind, name, size) for name, size in snapshot.nodes_by_idle(kind)],
            [snapshot.tightest_node(kind, count) for count in range(1, 10)],
        )
        for kind in snapshot.kinds
    }


def test_an_allocation_takes_all_or_nothing():
    snapshot = machines({"a": {"rtx": (3, 3)}})
    statement = Statement(snapshot)
    first, second, third = snapshot.devices("rtx", NodeId("a"), 3)
    assert statement.allocate("rtx", [second])
    before = contents(snapshot)
    assert not statement.allocate("rtx", [first, second, third])
    assert not statement.allocate("rtx", [first, first])
    assert contents(snapshot) == before


def test_evicting_makes_room_and_an_idle_device_cannot_be_evicted():
    snapshot = machines({"a": {"rtx": (2, 2)}})
    gang = snapshot.devices("rtx", NodeId("a"), 2)
    statement = Statement(snapshot)
    assert statement.allocate("rtx", gang)
    assert snapshot.tightest_node("rtx", 1) is None
    assert statement.evict("rtx", gang[:1])
    assert not statement.evict("rtx", gang)
    assert snapshot.devices("rtx", NodeId("a"), 1) == gang[:1]


def test_a_rollback_undoes_what_came_after_the_checkpoint_only():
    snapshot = machines({"a": {"rtx": (2, 2)}, "b": {"rtx": (2, 2)}})
    statement = Statement(snapshot)
    assert statement.allocate("rtx", snapshot.devices("rtx", NodeId("a"), 1))
    mark, before = statement.checkpoint(), contents(snapshot)
    assert statement.allocate("rtx", snapshot.devices("rtx", NodeId("b"), 2))
    statement.rollback(mark)
    assert contents(snapshot) == before
    statement.commit()
    statement.rollback()
    assert contents(snapshot) == before


def test_asking_for_more_devices_than_are_idle_is_an_error():
    with pytest.raises(ValueError, match="has 1 idle rtx, not 2"):
        machines({"a": {"rtx": (2, 1)}}).devices("rtx", NodeId("a"), 2)


@given(
    st.dictionaries(
        st.sampled_from("abcde"), st.integers(0, 4).map(lambda n: {"rtx": (4, n)}), min_size=1
    ),
    st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=8),
)
def test_any_edits_rolled_back_leave_no_trace(layout, edits):
    snapshot = machines(layout)
    before = contents(snapshot)
    statement = Statement(snapshot)
    taken = []
    for evict, count in edits:
        name = snapshot.tightest_node("rtx", count)
        if evict and taken:
            assert statement.evict("rtx", taken.pop())
        elif name is not None:
            taken.append(snapshot.devices("rtx", name, count))
            assert statement.allocate("rtx", taken[-1])
    statement.rollback()
    assert contents(snapshot) == before


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.integers(0, 5).map(lambda n: {"rtx": (5, n)}), min_size=1
    ),
    st.integers(1, 5),
)
def test_the_index_agrees_with_a_scan(layout, count):
    snapshot = machines(layout)
    idle = {name: kinds["rtx"][1] for name, kinds in layout.items()}
    fitting = sorted((free, name) for name, free in idle.items() if free >= count)
    assert snapshot.tightest_node("rtx", count) == (fitting[0][1] if fitting else None)
    assert snapshot.idle("rtx") == sum(idle.values())
    by_idle = sorted(
        ((name, free) for name, free in idle.items() if free), key=lambda p: (-p[1], p[0])
    )
    assert list(snapshot.nodes_by_idle("rtx")) == by_idle
