"""Simulated moves beside training, worked out by hand."""

from tests.support.simulation import a_job, a_plan, a_setup, ends, nodes, simulate

from frenzy_scheduler.core.prices import WARM_SHARE
from frenzy_simulator.scenario import Scenario

ONE, TWO = a_setup(1), a_setup(2)
START_S = 10.0
ROWS = {
    ONE: (a_plan("fast", "a100", 1, 1.0),),
    TWO: (a_plan("slow", "t4", 1, 4.0), a_plan("quick", "a100", 1, 1.0)),
}
# The first job has the fast device until 210 s; then the second, on the slow one, has better.
JOBS = [a_job("first", 0, 200, ONE), a_job("moves", 0, 1000, TWO)]
LEFT_AT = 210.0


def run(*, warm, jobs=JOBS, **more):
    scenario = Scenario(start_s=START_S, make_before_break=warm, **more)
    return simulate("frenzy", jobs, nodes(t4=(1, 1), a100=(1, 1)), ROWS, scenario)


def test_a_job_that_is_stopped_first_pays_a_whole_restart():
    outcome = run(warm=False)
    trained = (LEFT_AT - START_S) / 4
    assert ends(outcome)["moves"] == LEFT_AT + START_S + 1000 - trained
    assert outcome.preemptions == 1


def test_a_job_that_gets_ready_first_trains_meanwhile_and_pays_the_measured_share():
    outcome = run(warm=True)
    trained = LEFT_AT / 4  # a start that it gets ready in is one start less that it waits
    gap_s = WARM_SHARE * START_S
    assert ends(outcome)["moves"] == LEFT_AT + START_S + gap_s + 1000 - trained
    assert outcome.preemptions == 1
    by_kind = {stay.kind: stay for stay in outcome.stays if stay.job == "moves"}
    assert by_kind["t4"].until_s == by_kind["a100"].from_s == LEFT_AT + START_S


def test_its_devices_go_on_only_when_it_has_left_them():
    later = a_job("later", 212, 10, TWO)
    outcome = run(warm=True, jobs=[*JOBS, later])
    stay = next(stay for stay in outcome.stays if stay.job == "later")
    assert stay.from_s >= LEFT_AT + START_S
