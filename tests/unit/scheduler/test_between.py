"""Decisions between two full comparisons: few take part, nobody loses devices, nothing is idle."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduling import machines
from tests.support.simulation import a_plan, running, waiting

from frenzy_scheduler.core.between import Between
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Place, Preempt, Resize, View
from frenzy_scheduler.core.policies.frenzy import Frenzy

HOUR_MS = 3_600_000
PLANS = [a_plan(f"p{n}", "rtx", n, 1.0 / n**0.9) for n in (1, 2, 4)]
LAYOUT = {"a": {"rtx": (4, 0)}, "b": {"rtx": (4, 3)}}
steps = st.integers(10, 100_000)


def world(queue_steps, held_steps):
    queue = [waiting(f"w{n}", n, *PLANS, steps=left) for n, left in enumerate(queue_steps)]
    places = [f"a/rtx-{n}" for n in range(4)] + ["b/rtx-0"]
    held = [
        running(f"r{n}", 100 + n, *PLANS, devices=[place], steps=left, restart_s=10.0)
        for n, (place, left) in enumerate(zip(places, held_steps, strict=True))
    ]
    return View(queue=queue, running=held, snapshot=machines(LAYOUT), now_ms=HOUR_MS)


def decide(between, view):
    first, second = between.taking_part(
        [job.id for job in view.queue], [job.id for job in view.running]
    )
    queue = [job for job in view.queue if job.id in set(first)]
    held = [job for job in view.running if job.id in set(second)]
    return cycle(queue, view.snapshot, view.now_ms, between.policy, held)


worlds = st.builds(
    world, st.lists(steps, min_size=1, max_size=9), st.lists(steps, min_size=5, max_size=5)
)


@given(worlds)
def test_with_few_jobs_everybody_is_always_compared(view):
    between = Between(Frenzy(), most=20)
    between.compared(view)
    assert between.due(len(view.queue) + len(view.running), view.now_ms)


@settings(max_examples=60, deadline=None)
@given(worlds, st.integers(1, 2))
def test_nobody_loses_devices_and_none_that_somebody_could_use_stays_idle(view, most):
    between = Between(Frenzy(), most=most)
    between.compared(view)
    decisions = decide(between, view)
    assert not any(isinstance(one, Preempt) for one in decisions)
    own = {job.id: job for job in view.running}
    for one in decisions:
        if isinstance(one, Resize):
            before = own[one.job].plan
            after = next(plan for plan in PLANS if plan.id == one.placement.plan)
            assert before is not None
            assert after.speed.step_s < before.speed.step_s
    taken = [
        ref.key
        for one in decisions
        if isinstance(one, Place | Resize)
        for ref in one.placement.devices
    ]
    assert len(taken) == len(set(taken))
    assert any(isinstance(one, Place | Resize) for one in decisions)


def test_who_has_come_since_takes_part_and_who_has_gone_does_not():
    view = world([100, 200, 300], [1000] * 5)
    between = Between(Frenzy(), most=1)
    between.compared(view)
    between.enter("new")
    first, second = between.taking_part(["new", "w1", "w2"], ["r1"])
    assert first == ["new", "w1"]  # the shortest has gone
    assert set(second) <= {"r1"}


def test_everybody_is_compared_once_a_minute_and_when_nodes_change():
    view = world([100] * 9, [1000] * 5)
    between = Between(Frenzy(), most=2)
    assert between.due(14, HOUR_MS)
    between.compared(view)
    assert not between.due(14, HOUR_MS + 59_999)
    assert between.due(14, HOUR_MS + 60_000)
    between.rebuilt()
    assert between.due(14, HOUR_MS)


def test_a_job_whose_time_has_not_come_does_not_count():
    view = world([100, 200], [1000] * 5)
    early = [replace(view.queue[0], not_before_ms=2 * HOUR_MS), view.queue[1]]
    waits, _ = Frenzy().eager(replace(view, queue=early))
    assert waits == ["w1"]
