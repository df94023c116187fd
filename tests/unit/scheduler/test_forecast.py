"""When jobs start and end: against cases computed by hand, and what an answer promises."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.questions import NOON, a_question, running_on
from tests.support.simulation import a_plan, waiting

from frenzy_scheduler.core.admission import Ledger
from frenzy_scheduler.core.forecast import USUAL, Assumptions, Band, Blur, band, bands, forecast
from frenzy_scheduler.core.future import Arrivals, Budget, Future, Present, Window
from frenzy_scheduler.core.luck import Luck
from frenzy_shared.domain.placement import Unplaceable

ONE, TWO = a_plan("p1", "rtx", 1, 1.0), a_plan("p2", "rtx", 2, 1.0)
TIMES = st.floats(min_value=0, max_value=1e7)
EXACT = Blur(0.0)
SURE = Assumptions(
    sigma=0.0,
    early_end_share=0.0,
    steady=EXACT,
    measured=EXACT,
    elastic_start=EXACT,
    elastic_end=EXACT,
    elastic_running=EXACT,
)


def present(layout, queue, held=(), *, policy="has", **more):
    question = a_question(layout, queue, held, policy=policy)
    return Present(
        queue=question.queue,
        running=question.running,
        snapshot=question.snapshot,
        now_ms=NOON,
        policy=question.policy,
        **more,
    )


def test_a_chain_of_waits_is_added_up():
    """r ends in 100 s; a takes its device for 50 s; b after it for 70 s; each starts for 10 s."""
    queue = [waiting("a", 2, ONE, steps=50), waiting("b", 3, ONE, steps=70)]
    held = [running_on("r", 1, ONE, "n/rtx-0", steps=100)]
    found = forecast(present({"n": {"rtx": 1}}, queue, held, start_s=10.0), assumptions=SURE)
    assert found.etas["r"].start is None
    assert found.etas["r"].end == Band(p50_s=100.0, p90_s=100.0)
    assert found.etas["a"].start == Band(p50_s=100.0, p90_s=100.0)
    assert found.etas["a"].end == Band(p50_s=160.0, p90_s=160.0)
    assert found.etas["b"].start == Band(p50_s=160.0, p90_s=160.0)
    assert found.etas["b"].end == Band(p50_s=240.0, p90_s=240.0)
    assert (found.futures, found.cut_off_s) == (16, None)


def test_a_measured_speed_counts_more_than_the_predicted_one():
    slow = running_on("r", 1, ONE, "n/rtx-0", steps=100)
    slow = replace(slow, progress=replace(slow.progress, step_s=3.0))
    found = forecast(present({"n": {"rtx": 1}}, [waiting("a", 2, ONE)], [slow]), assumptions=SURE)
    assert found.etas["r"].end.p50_s == found.etas["a"].start.p50_s == 300.0


def test_a_job_of_unknown_length_ends_when_marp_said_and_then_a_fifth_of_its_age_later():
    """MARP says 1000 s; it was placed 3600 s ago."""
    late = running_on("r", 1, ONE, "n/rtx-0", steps=None)
    young = replace(late, placed_ms=NOON - 400_000)
    for job, left_s in ((young, 600.0), (late, 720.0)):
        found = forecast(present({"n": {"rtx": 1}}, [], [job]), assumptions=SURE)
        assert found.etas["r"].end.p50_s == left_s


def test_under_a_preemptive_policy_a_short_job_goes_first_and_the_long_one_ends_later():
    long = running_on("long", 1, ONE, "n/rtx-0", steps=5000)
    short = waiting("short", 2, ONE, steps=100)
    found = forecast(
        present({"n": {"rtx": 1}}, [short], [long], policy="srtf-preemptive"), assumptions=SURE
    )
    assert found.etas["short"].start == Band(p50_s=0.0, p90_s=0.0)
    assert found.etas["short"].end.p50_s == 100.0
    assert found.etas["long"].end.p50_s == pytest.approx(5100.0)


def test_arrivals_that_overtake_push_a_wide_job_back():
    """Under skipping, narrow jobs that keep coming hold the second device."""
    wide = waiting("wide", 2, TWO, steps=10)
    held = [running_on("r", 1, ONE, "n/rtx-0", steps=100)]
    narrow = waiting("like", 0, ONE, steps=200)
    alone = forecast(present({"n": {"rtx": 2}}, [wide], held), assumptions=SURE)
    busy = Arrivals(per_s=1 / 60, jobs=(narrow,))
    crowded = forecast(present({"n": {"rtx": 2}}, [wide], held, arrivals=busy), assumptions=SURE)
    assert alone.etas["wide"].start.p50_s == 100.0
    assert crowded.etas["wide"].start.p90_s is None or crowded.etas["wide"].start.p90_s > 200


def test_no_time_is_given_where_nobody_can_know():
    blocked = replace(waiting("b", 1, ONE), blocked=Unplaceable(reason="Held", message="held"))
    stranger = running_on("r", 2, ONE, "n/rtx-0")
    stranger = replace(stranger, placement=replace(stranger.placement, plan="gone"))
    queue = [blocked, waiting("none", 3), waiting("never", 4, a_plan("p9", "rtx", 9, 1.0))]
    found = forecast(present({"n": {"rtx": 1}}, queue, [stranger]), assumptions=SURE)
    assert set(found.etas) == set()


@pytest.mark.parametrize("policy", ["has", "frenzy"])
def test_no_time_is_given_where_a_node_must_come_back_and_others_keep_theirs(policy):
    """``pinned`` may use only a node that is draining, so that it is not in the snapshot."""
    pinned = replace(waiting("pinned", 1, ONE, steps=10), nodes=frozenset({"draining"}))
    free = waiting("free", 2, ONE, steps=100)
    found = forecast(present({"n": {"rtx": 1}}, [pinned, free], policy=policy), assumptions=SURE)
    assert set(found.etas) == {"free"}
    assert found.etas["free"].end.p50_s == 100.0
    assert found.cut_off_s is None


def test_a_back_off_is_waited_for():
    job = waiting("j", 1, ONE)
    job = replace(job, not_before_ms=NOON + 30_000)
    found = forecast(present({"n": {"rtx": 1}}, [job]), assumptions=SURE)
    assert found.etas["j"].start.p50_s == 30.0


def test_the_same_seed_gives_the_same_answer_and_another_one_a_band_around_it():
    queue = [waiting(f"j{n}", n, ONE, steps=100 + n) for n in range(6)]
    here = present({"n": {"rtx": 2}}, queue, arrivals=Arrivals(per_s=0.01, jobs=tuple(queue)))
    assert forecast(here) == forecast(here)
    assert forecast(here) != forecast(here, seed=1)
    last = forecast(here).etas["j5"].end
    assert last.p50_s < last.p90_s < 2 * last.p50_s


def test_the_snapshot_and_the_ledger_are_left_as_they_were():
    held = [running_on("r", 1, ONE, "n/rtx-0")]
    ledger = Ledger()
    here = present({"n": {"rtx": 2}}, [waiting("j", 2, TWO)], held, ledger=ledger)
    forecast(here)
    assert here.snapshot.idle("rtx") == 1
    assert ledger.use("default", "rtx") == 0


def test_work_is_bounded_and_the_answer_says_how_far_it_reaches():
    queue = [waiting(f"j{n:03}", n, ONE, steps=100) for n in range(100)]
    here = present({"n": {"rtx": 1}}, queue)
    found = forecast(here, assumptions=replace(SURE, work=6_000))
    assert found.futures < 16
    assert 0 < found.cut_off_s < 10_000
    assert found.etas["j000"].start.p50_s == 0.0
    assert found.etas["j099"].start == Band(p50_s=None, p90_s=None)


def test_a_cut_off_future_takes_running_jobs_to_go_on():
    long = running_on("long", 1, ONE, "n/rtx-0", steps=50_000)
    here = present({"n": {"rtx": 1}}, [], [long], policy="frenzy")
    future = Future(
        here,
        Luck(0, 0, sigma=0.0, early_end_share=0.0),
        Budget(100),
        window=Window(share=0.1, most_s=60.0),
        horizon_s=inf,
    )
    future.run()
    assert future.cut_off_s < 50_000
    assert future.ends == {"long": 50_000.0}


def test_luck_covers_what_may_happen_with_few_draws():
    runs = [Luck(7, number, sigma=0.3, early_end_share=0.25) for number in range(16)]
    errors = sorted(luck.error("j", "p") for luck in runs)
    assert errors[0] < 0.75 < 0.95 < errors[8] < 1.1 < 1.4 < errors[-1]
    early = [luck.over_at("j") for luck in runs if luck.over_at("j")]
    assert len(early) == 4
    assert max(early) - min(early) > 0.5


def test_a_band_interpolates_and_infinity_is_none():
    assert band([10.0] * 4, EXACT) == Band(p50_s=10.0, p90_s=10.0)
    assert band([10.0, 20.0], EXACT).p50_s == 15.0
    assert band([10.0, 20.0, inf], EXACT) == Band(p50_s=20.0, p90_s=None)
    assert band([100.0], Blur(0.3)).p90_s > 130
    assert band([100.0], Blur(0.0, delay=1.5)).p50_s == 150.0


@given(
    futures=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=16),
    lost=st.integers(min_value=0, max_value=3),
)
def test_no_job_is_done_before_it_starts(futures, lost):
    """Whatever futures say, and however differently starts and ends are moved."""
    starts = [start for start, _ in futures] + [inf] * lost
    ends = [start + takes for start, takes in futures] + [inf] * lost
    eta = bands(starts, ends, USUAL.elastic_start, USUAL.elastic_end)
    for start, end in ((eta.start.p50_s, eta.end.p50_s), (eta.start.p90_s, eta.end.p90_s)):
        assert end is None or (start is not None and 0 <= start <= end)


def test_a_start_keeps_what_its_future_takes_from_the_end():
    """Starts would move from 500 to 900 s, ends from 540 s to 729 s: 40 s before it starts."""
    eta = bands([500.0], [540.0], Blur(0.0, delay=1.8), Blur(0.0, delay=1.35))
    assert (eta.start.p50_s, eta.end.p50_s) == pytest.approx((689.0, 729.0))
    early = bands([100.0], [540.0], Blur(0.0, delay=1.8), Blur(0.0, delay=1.35))
    assert (early.start.p50_s, early.end.p50_s) == pytest.approx((180.0, 729.0))


def test_arrivals_far_away_come_in_bulk_and_take_as_much_of_the_cluster():
    """Half the cluster's work arrives; a job that is stopped for it takes about twice as long."""
    long = running_on("long", 1, ONE, "n/rtx-0", steps=20_000)
    short = Arrivals(per_s=1 / 200, jobs=(waiting("like", 0, ONE, steps=100),))
    here = present({"n": {"rtx": 1}}, [], [long], policy="srtf-preemptive", arrivals=short)
    found = forecast(here, assumptions=replace(SURE, work=10**7))
    assert found.cut_off_s is None
    assert 30_000 < found.etas["long"].end.p50_s < 50_000


def test_beyond_the_cut_off_time_goes_slower_instead_of_arrivals():
    long = running_on("long", 1, ONE, "n/rtx-0", steps=20_000)
    short = Arrivals(per_s=1 / 200, jobs=(waiting("like", 0, ONE, steps=100),))
    here = present({"n": {"rtx": 1}}, [], [long], policy="srtf-preemptive", arrivals=short)
    found = forecast(here, assumptions=replace(SURE, work=4_000))
    assert found.cut_off_s < 20_000
    assert 26_000 < found.etas["long"].end.p50_s < 60_000
