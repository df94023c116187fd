"""Strategies that look at all jobs at once, case by case."""

import pytest
from tests.support.scheduling import machines
from tests.support.simulation import a_plan, running, waiting

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place, Preempt, Resize, View
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.policies import policy_named
from frenzy_scheduler.core.policies.backfill import Backfill, reserve
from frenzy_scheduler.core.policies.frenzy import Frenzy, kind_prices
from frenzy_scheduler.core.policies.las import Las

HOUR_MS = 3_600_000
ONE, TWO, FOUR = (a_plan(f"p{n}", "rtx", n, 1.0 / n**0.9) for n in (1, 2, 4))


def kinds_of(decisions):
    return [type(decision) for decision in decisions]


def decide(name, queue, layout, held=(), now_ms=0):
    return cycle(queue, machines(layout), now_ms, policy_named(name), held)


def test_only_the_strategies_that_say_so_stop_running_jobs():
    assert not policy_named("backfill").preemptive
    for name in ("frenzy", "srtf-preemptive", "las"):
        assert policy_named(name).preemptive
    assert policy_named("sia") is None


def test_srtf_takes_the_job_that_is_over_soonest():
    queue = [waiting("long", 1, ONE, steps=900), waiting("short", 2, ONE, steps=100)]
    place, hold = decide("srtf", queue, {"a": {"rtx": (1, 1)}})
    assert (place.job, hold.job.id) == ("short", "long")


def test_srtf_of_jobs_of_unknown_length_goes_by_the_plans_total():
    slow, quick = a_plan("p", "rtx", 1, 2.0), a_plan("p", "rtx", 1, 1.0)
    queue = [waiting("slow", 1, slow, steps=None), waiting("quick", 2, quick, steps=None)]
    assert decide("srtf", queue, {"a": {"rtx": (1, 1)}})[0].job == "quick"


def test_preemptive_srtf_stops_the_longest_and_leaves_others_where_they_are():
    held = [
        running("long", 1, ONE, devices=["a/rtx-0"], steps=900),
        running("middle", 2, ONE, devices=["a/rtx-1"], steps=500),
    ]
    layout = {"a": {"rtx": (2, 0)}}
    decisions = decide("srtf-preemptive", [waiting("short", 3, ONE, steps=100)], layout, held)
    assert decisions[0] == Preempt(job="long", version=0)
    assert [ref.key for ref in decisions[1].placement.devices] == ["a/rtx-0"]
    assert kinds_of(decisions) == [Preempt, Place]


def test_a_job_that_must_not_be_stopped_is_not():
    held = [running("long", 1, ONE, devices=["a/rtx-0"], steps=900, preemptible=False)]
    for name in ("srtf-preemptive", "las", "frenzy"):
        decisions = decide(
            name, [waiting("s", 3, ONE, steps=1)], {"a": {"rtx": (1, 0)}}, held, HOUR_MS
        )
        assert kinds_of(decisions) == [Hold], name


def test_las_demotes_by_attained_service_and_promotes_who_waited_long():
    las = Las(threshold_device_s=100.0, promote_after=8.0)
    served = running("served", 1, ONE, devices=["a/rtx-0"], attained=150.0)
    fresh = waiting("fresh", 2, ONE)
    snapshot = machines({"a": {"rtx": (1, 0)}})

    def chosen(now_ms):
        view = View(queue=[fresh], running=[served], snapshot=snapshot, now_ms=now_ms)
        return list(las.allocate(view))

    assert chosen(1_000_000) == ["fresh"]
    assert chosen(8 * 150_000 + 1) == ["served"]  # it has waited eight times its service


def test_backfill_reserves_for_the_head_and_fills_around_it():
    """Two of four devices are idle; the head needs four and gets them in 50 s."""
    held = [running("r", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], steps=50 / TWO.speed.step_s)]
    head = waiting("head", 2, FOUR)
    short, long = waiting("short", 4, ONE, steps=49), waiting("long", 3, ONE, steps=51)
    decisions = decide("backfill", [head, short, long], {"a": {"rtx": (4, 2)}}, held)
    assert kinds_of(decisions) == [Place, Hold, Hold]
    assert decisions[0].job == "short"
    first, second = decisions[1:]
    assert (first.job.id, first.reserved_for) == ("head", None)
    assert (second.job.id, second.reserved_for) == ("long", "head")
    assert "would delay job head" in explain(second, 0).message
    assert "needs 4 x rtx" in explain(first, 0).message


def test_backfill_lets_a_long_job_have_what_the_head_will_not_need():
    held = [running("r", 1, TWO, devices=["a/rtx-0", "a/rtx-1"], steps=50)]
    three = a_plan("p3", "rtx", 3, 0.5)
    jobs = [waiting("head", 2, three), waiting("l1", 3, ONE, steps=1e6), waiting("l2", 4, ONE)]
    decisions = decide("backfill", jobs, {"a": {"rtx": (4, 2)}}, held)
    assert [d.job for d in decisions if isinstance(d, Place)] == ["l1"]


def test_a_reservation_takes_the_plan_that_starts_first():
    job = waiting("j", 1, FOUR, a_plan("t", "t4", 1, 9.0))
    snapshot = machines({"a": {"rtx": (4, 0)}, "b": {"t4": (1, 0)}})
    found = reserve(job, snapshot, [("rtx", 100.0, 2), ("rtx", 200.0, 2), ("t4", 150.0, 1)])
    assert (found.plan.id, found.at_s, found.spare) == ("t", 150.0, 0)
    assert reserve(job, snapshot, [("rtx", 100.0, 2)]) is None
    assert Backfill().preemptive is False


def test_frenzy_prefers_a_start_to_width_when_that_ends_jobs_sooner():
    plans = [a_plan(f"p{n}", "rtx", n, 1.0 / n**0.6) for n in (4, 2, 1)]
    queue = [waiting(f"j{n}", n, *plans, steps=1000) for n in range(4)]
    decisions = decide("frenzy", queue, {"a": {"rtx": (4, 4)}})
    assert kinds_of(decisions) == [Place] * 4
    assert {len(decision.placement.devices) for decision in decisions} == {1}


def test_frenzy_runs_jobs_one_after_another_when_width_costs_nothing():
    plans = [a_plan(f"p{n}", "rtx", n, 1.0 / n) for n in (4, 2, 1)]
    queue = [waiting("long", 1, *plans, steps=2000), waiting("short", 2, *plans, steps=1000)]
    place, hold = decide("frenzy", queue, {"a": {"rtx": (4, 4)}})
    assert (place.job, len(place.placement.devices), hold.job.id) == ("short", 4, "long")


def test_frenzy_gives_a_lonely_job_everything_it_can_use():
    (decision,) = decide("frenzy", [waiting("j", 1, FOUR, TWO, ONE)], {"a": {"rtx": (4, 4)}})
    assert decision.placement.plan == "p4"


@pytest.mark.parametrize("now_ms", [10 * HOUR_MS, 1_000])
def test_frenzy_grows_a_job_only_when_that_pays_for_the_restart_however_new_it_is(now_ms):
    layout = {"a": {"rtx": (4, 3)}}

    def change(steps):
        job = running("j", 1, ONE, FOUR, devices=["a/rtx-0"], steps=steps, restart_s=60.0)
        return decide("frenzy", [], layout, [job], now_ms)

    (resize,) = change(10_000)
    assert isinstance(resize, Resize)
    assert len(resize.placement.devices) == 4
    assert change(60) == []  # a restart takes longer than the rest


def test_frenzy_takes_no_devices_that_a_job_got_less_than_twenty_restarts_ago():
    layout = {"a": {"rtx": (1, 0)}}

    def change(now_ms):
        job = running("long", 1, ONE, devices=["a/rtx-0"], steps=100_000, restart_s=60.0)
        return kinds_of(decide("frenzy", [waiting("s", 2, ONE, steps=9)], layout, [job], now_ms))

    assert change(1_199_000) == [Hold]
    assert change(1_200_000) == [Preempt, Place]


def test_a_job_that_gets_on_never_loses_its_devices_to_fragments():
    """Four devices come free in sum, but no node holds the wide plan; a rival wants its own."""
    from dataclasses import replace

    whole = replace(FOUR, single_node=True)
    new = running("new", 1, TWO, whole, devices=["a/rtx-0", "a/rtx-1"], steps=1e5, restart_s=60.0)
    layout = {"a": {"rtx": (2, 0)}, "b": {"rtx": (2, 2)}}
    rivals = [waiting("r1", 2, TWO, steps=1e6), waiting("r2", 3, TWO, steps=1e6)]
    decisions = decide("frenzy", rivals, layout, [new], 1_000)
    assert Preempt not in kinds_of(decisions)


def test_frenzy_moves_beside_training_onto_no_device_of_its_own():
    """The node with fewest idle devices is the job's own; there it could not get ready."""
    from dataclasses import replace

    job = running("j", 1, ONE, TWO, devices=["a/rtx-0"], steps=1e5, restart_s=60.0)
    beside = replace(job, progress=replace(job.progress, move_s=20.0))
    layout = {"a": {"rtx": (2, 1)}, "b": {"rtx": (3, 3)}}

    def where(one):
        (resize,) = decide("frenzy", [], layout, [one], HOUR_MS)
        return {ref.node for ref in resize.placement.devices}

    assert where(job) == {"a"}
    assert where(beside) == {"b"}


def test_frenzy_shrinks_a_long_job_for_a_short_one():
    devices = [f"a/rtx-{n}" for n in range(4)]
    long = running("long", 1, FOUR, ONE, devices=devices, steps=100_000, restart_s=1.0)
    decisions = decide(
        "frenzy", [waiting("short", 2, ONE, steps=100)], {"a": {"rtx": (4, 0)}}, [long], HOUR_MS
    )
    assert {type(d): (d.job, d.placement.plan) for d in decisions} == {
        Resize: ("long", "p1"),
        Place: ("short", "p1"),
    }


def test_frenzy_knows_who_needs_the_scarce_kind():
    """Both run on either kind; one loses ten-fold on the slow kind, the other nothing."""
    picky = [a_plan("a", "a100-80", 1, 1.0), a_plan("t", "t4", 1, 10.0)]
    easy = [a_plan("a", "a100-80", 1, 1.0), a_plan("t", "t4", 1, 1.1)]
    queue = [waiting("easy", 1, *easy), waiting("picky", 2, *picky)]
    decisions = decide("frenzy", queue, {"n": {"a100-80": (1, 1)}, "m": {"t4": (1, 1)}})
    assert {d.job: d.placement.kind for d in decisions} == {"picky": "a100-80", "easy": "t4"}
    prices = kind_prices(queue)
    assert prices["a100-80"] == 1.0 > prices["t4"] == (0.1 + 1 / 1.1) / 2


def test_frenzy_lets_age_win_in_the_end():
    old = waiting("old", 1, ONE, steps=3000, arrived_ms=0)
    young = waiting("young", 2, ONE, steps=1000, arrived_ms=60 * HOUR_MS)
    layout = {"a": {"rtx": (1, 1)}}
    assert decide("frenzy", [old, young], layout, now_ms=60 * HOUR_MS)[0].job == "old"
    ageless = cycle([old, young], machines(layout), 60 * HOUR_MS, Frenzy(ageing_s=1e12))
    assert ageless[0].job == "young"


def test_frenzy_treats_unknown_lengths_by_attained_service():
    served = running("served", 1, ONE, devices=["a/rtx-0"], steps=None, attained=50_000.0)
    fresh = waiting("fresh", 2, ONE, steps=None)
    decisions = decide("frenzy", [fresh], {"a": {"rtx": (1, 0)}}, [served], HOUR_MS)
    assert kinds_of(decisions) == [Preempt, Place]


def test_a_move_that_does_not_fit_the_nodes_leaves_the_job_where_it_is():
    """Four devices are there in sum, but not on one node, as the wide plan demands."""
    from dataclasses import replace

    whole = replace(FOUR, single_node=True)
    job = running("j", 1, TWO, whole, devices=["a/rtx-0", "a/rtx-1"], steps=100_000)
    layout = {"a": {"rtx": (2, 0)}, "b": {"rtx": (2, 2)}}
    assert decide("frenzy", [], layout, [job], HOUR_MS) == []


def test_devices_of_a_node_that_went_down_are_not_handed_out():
    job = running("j", 1, ONE, devices=["gone/rtx-0"], steps=100_000)
    decisions = decide(
        "srtf-preemptive", [waiting("s", 2, ONE, steps=1)], {"a": {"rtx": (1, 1)}}, [job]
    )
    placed = [ref.key for d in decisions if isinstance(d, Place) for ref in d.placement.devices]
    assert placed == ["a/rtx-0"]


def test_a_job_whose_plan_nobody_knows_any_more_is_left_alone():
    from dataclasses import replace

    job = replace(running("j", 1, ONE, devices=["a/rtx-0"], steps=1e6), plans=(TWO,))
    for name in ("srtf-preemptive", "las", "frenzy"):
        queue = [waiting("s", 2, ONE, steps=1)]
        assert kinds_of(decide(name, queue, {"a": {"rtx": (1, 0)}}, [job], HOUR_MS)) == [Hold]


@pytest.mark.parametrize("name", ["frenzy", "srtf-preemptive", "las", "backfill"])
def test_a_job_whose_nodes_are_away_waits_and_harms_nobody(name):
    """Of unknown length, too: nothing can be guessed of a job that no plan is left of."""
    away = waiting("away", 1, ONE, steps=None, nodes=frozenset())
    decisions = decide(name, [away, waiting("here", 2, ONE)], {"a": {"rtx": (1, 1)}})
    assert [d.job for d in decisions if isinstance(d, Place)] == ["here"]
    assert [d.job.id for d in decisions if isinstance(d, Hold)] == ["away"]
