from dataclasses import replace

from tests.support.scheduling import machines, plan, queued

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.policies import policy_named
from frenzy_shared.domain.plan import RefusedPlan

NOON = 1_800_000_000_000


def why(job, layout, *, others=(), policy="has", now_ms=NOON):
    decisions = cycle([*others, job], machines(layout), now_ms, policy_named(policy))
    return explain(decisions[-1], now_ms)


def test_capacity_in_use_is_counted():
    found = why(queued("j", 1, plan("p1", "rtx", 3)), {"a": {"rtx": (4, 2)}})
    assert found.reason == "WaitingForCapacity"
    assert found.message == "plan p1 needs 3 x rtx; 2 of 4 are idle"


def test_idle_devices_on_too_many_nodes_are_fragmented():
    layout = {"a": {"rtx": (4, 2)}, "b": {"rtx": (4, 2)}}
    found = why(queued("j", 1, plan("p1", "rtx", 4, single_node=True)), layout)
    assert found.reason == "CapacityFragmented"
    assert found.message == (
        "plan p1 needs 4 x rtx on one node; 4 are idle, but at most 2 on one node"
    )


def test_devices_that_no_node_has_are_waited_for_as_nodes():
    found = why(queued("j", 1, plan("p1", "a100-80", 1)), {"a": {"rtx": (4, 4)}})
    assert found.reason == "WaitingForNodes"
    assert found.message == "plan p1 needs 1 x a100-80; nodes that are up have 0"


def test_one_plan_that_could_run_on_present_nodes_makes_it_a_matter_of_capacity():
    plans = [plan("far", "a100-80", 1), plan("near", "rtx", 2), plan("wide", "rtx", 4)]
    found = why(queued("j", 1, *plans), {"a": {"rtx": (4, 1)}})
    assert found.reason == "WaitingForCapacity"
    assert found.message == (
        "plan near needs 2 x rtx; 1 of 4 are idle; none of 2 other plans fits either"
    )
    assert found.nearest == "plan near needs 2 x rtx; 1 of 4 are idle"


def test_backoff_comes_before_capacity_and_names_the_time():
    job = queued("j", 1, plan("p1", "rtx", 9), not_before_ms=NOON + 10_000)
    job = replace(job, message="attempt 1 ended: it broke; retry 1 of 2 in 10 s")
    found = why(job, {"a": {"rtx": (4, 4)}})
    assert found.reason == "BackoffAfterFailure"
    assert found.message == (
        "the next attempt is not before 08:00:10 UTC; "
        "attempt 1 ended: it broke; retry 1 of 2 in 10 s"
    )


def test_no_plan_names_the_refusal_that_was_closest():
    refused = tuple(
        RefusedPlan(
            kind="rtx",
            device_count=1,
            option=f"1 x rtx, ZeRO-{stage}",
            reason=f"needs {need} GiB, the device has 10 GiB",
            pin=pin,
            shortfall_bytes=(need - 10) * 2**30,
        )
        for stage, need, pin in ((1, 20, ""), (3, 12, "resources.gpus"))
    )
    found = why(replace(queued("j", 1), refused=refused), {"a": {"rtx": (4, 4)}})
    assert found.reason == "NoFeasiblePlan"
    assert found.message == "none of 2 options fits this cluster's devices"
    assert found.nearest == (
        "1 x rtx, ZeRO-3: needs 12 GiB, the device has 10 GiB (pinned by resources.gpus)"
    )


def test_under_fifo_the_job_ahead_is_the_reason():
    wide, narrow = queued("wide", 1, plan("p", "rtx", 4)), queued("narrow", 2, plan("p", "rtx", 1))
    found = why(narrow, {"a": {"rtx": (4, 2)}}, others=[wide], policy="fifo")
    assert found.message == "strict arrival order: job wide comes first"
