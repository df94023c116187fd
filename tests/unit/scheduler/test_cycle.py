from tests.support.scheduling import cluster, device, machines, node, plan, queued

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place
from frenzy_scheduler.core.policies import POLICIES, policy_named
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.cluster import NodeState

FIFO = policy_named("fifo")
HAS = policy_named("has")


def test_policies_are_known_by_name():
    assert [policy.name for policy in POLICIES] == ["has", "fifo", "srtf", "backfill"]
    assert policy_named("sia") is None


def test_fifo_lets_nothing_overtake_the_head():
    snapshot = machines({"a": {"rtx": (4, 2)}})
    wide, narrow = queued("wide", 1, plan("p", "rtx", 3)), queued("narrow", 2, plan("p", "rtx", 1))
    first, second = cycle([narrow, wide], snapshot, 0, FIFO)
    assert (first.job.id, first.position, first.behind) == ("wide", 1, None)
    assert (second.job.id, second.position, second.behind) == ("narrow", 2, "wide")


def test_fifo_places_the_head_and_goes_on():
    snapshot = machines({"a": {"rtx": (4, 2)}})
    one, two = queued("one", 1, plan("p", "rtx", 1)), queued("two", 2, plan("p", "rtx", 1))
    assert [d.job for d in cycle([one, two], snapshot, 0, FIFO)] == ["one", "two"]


def test_fifo_is_not_blocked_by_a_job_that_backs_off_or_has_no_plan():
    snapshot = machines({"a": {"rtx": (1, 1)}})
    later = queued("later", 1, plan("p", "rtx", 1), not_before_ms=11)
    planless, ready = queued("planless", 2), queued("ready", 3, plan("p", "rtx", 1))
    decisions = cycle([later, planless, ready], snapshot, 10, FIFO)
    assert [type(decision) for decision in decisions] == [Hold, Hold, Place]


def test_backoff_ends_at_its_time():
    snapshot = machines({"a": {"rtx": (1, 1)}})
    job = queued("later", 1, plan("p", "rtx", 1), not_before_ms=10)
    assert isinstance(cycle([job], snapshot, 9, HAS)[0], Hold)
    assert isinstance(cycle([job], snapshot, 10, HAS)[0], Place)


def test_the_callers_snapshot_stays_as_it_was():
    snapshot = machines({"a": {"rtx": (2, 2)}})
    job = queued("j", 1, plan("p", "rtx", 2))
    assert cycle([job], snapshot, 0, HAS) == cycle([job], snapshot, 0, HAS)
    assert snapshot.idle("rtx") == 2


def test_a_hold_shows_the_cluster_as_the_cycle_leaves_it():
    snapshot = machines({"a": {"rtx": (2, 2)}})
    taker, waiter = queued("t", 1, plan("p", "rtx", 2)), queued("w", 2, plan("p", "rtx", 1))
    _, hold = cycle([taker, waiter], snapshot, 0, HAS)
    assert hold.after.idle("rtx") == 0


def test_only_healthy_devices_of_nodes_that_are_up_count():
    states = [NodeState.JOINING, NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING]
    nodes = [node(f"n-{s.lower()}", device("rtx-0", "rtx"), state=s) for s in states]
    nodes.append(node("up", device("rtx-0", "rtx", problem="XID 79"), device("rtx-1", "rtx")))
    quarantined = node("up2", device("rtx-0", "rtx"))
    owned = {"up2/rtx-0": "!quarantine:lost j#1"}
    snapshot = Snapshot.of(cluster([*nodes, quarantined], owned))
    assert (snapshot.total("rtx"), snapshot.idle("rtx")) == (2, 1)
    (decision,) = cycle([queued("j", 1, plan("p", "rtx", 1))], snapshot, 0, HAS)
    assert [ref.key for ref in decision.placement.devices] == ["up/rtx-1"]


def test_a_claim_carries_the_nodes_epoch():
    snapshot = Snapshot.of(cluster([node("a", device("rtx-0", "rtx"), epoch=7)]))
    (decision,) = cycle([queued("j", 1, plan("p", "rtx", 1))], snapshot, 0, HAS)
    assert (decision.placement.devices[0].epoch, decision.version) == (7, 3)
