"""What runs teach about plans that share more or less with them."""

from dataclasses import replace

import pytest
from tests.support.learning import CONDITIONS, run, under
from tests.support.planning import emulated, gpu, setup

from frenzy_marp.core.learning import Experience
from frenzy_marp.core.learning_errors import NOTHING_LEARNED
from frenzy_marp.core.learning_runs import Ending, Framework, conditions, shape_of
from frenzy_marp.core.memory.estimate import CORRECTION_TERM, LEARNED_TERM, uncorrected
from frenzy_marp.core.planner import plan_job
from frenzy_shared.messages.codec import from_json, to_json

KIND = emulated("a", 200)


def experience_of(demand, plan, *ratios, kind=KIND, **fields):
    """Experience with runs of one plan, each with its observed over predicted peak."""
    known = conditions(
        demand,
        plan.parallelism,
        framework=Framework.TRAINER,
        kind=kind.kind,
        emulated=kind.emulated,
        shape=shape_of(demand),
    )
    runs = (run(n, ratio=ratio, conditions=known, **fields) for n, ratio in enumerate(ratios))
    return Experience(runs)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "emulated-b"},
        {"family": "llama"},
        {"method": "lora"},
        {"framework": Framework.SCRIPT},
    ],
)
def test_nothing_is_learned_across_methods_and_kinds(other):
    experience = Experience([run(n, ratio=1.5) for n in range(9)])
    assert experience.about(CONDITIONS)[0].factor > 1.3
    assert experience.about(under(**other)) == (NOTHING_LEARNED, NOTHING_LEARNED)


def test_other_plans_and_models_learn_less():
    experience = Experience([run(n, ratio=1.5) for n in range(9)])
    own, shape, plan = (
        experience.about(under(**fields))[0].factor
        for fields in ({}, {"shape": "two"}, {"zero_stage": 3, "shape": "two"})
    )
    assert 1.0 < plan < shape < own < 1.5


def test_asking_about_ever_new_models_remembers_nothing_new():
    experience = Experience([run(n, ratio=1.5) for n in range(9)])
    answers = {experience.about(under(shape=str(number))) for number in range(50)}
    assert len(answers) == 1
    assert len(experience._known) == 1  # noqa: SLF001 - what would grow


def test_a_run_that_was_cut_short_teaches_nothing_about_memory():
    cut = run(ratio=0.1, ending=Ending.CUT)
    assert cut.memory_error is cut.speed_error is None
    assert Experience([cut]).about(CONDITIONS) == (NOTHING_LEARNED, NOTHING_LEARNED)


def test_a_run_without_peaks_that_survived_says_that_it_fitted():
    silent = run(allocated_bytes=(), room=1.3)
    assert silent.memory_error.low < 0 < silent.memory_error.high < 0.3


def test_an_out_of_memory_says_at_least_as_much_as_the_device_has():
    failed = run(ending=Ending.OUT_OF_MEMORY, room=1.4, ratio=1.2)
    assert failed.memory_error.low == pytest.approx(0.336, abs=0.001)


def test_runs_survive_the_store():
    known = run(ratio=1.2, slowness=3.0)
    assert from_json(type(known), to_json(known)) == known


def test_plans_show_what_was_learned_and_from_how_many_runs():
    demand = setup(
        gradient_checkpointing="none", resources={"gpus": 1, "zero_stage": 1, "micro_batch_size": 8}
    )
    roomy = emulated("a", 4000)
    (before,) = plan_job(demand, [roomy]).plans
    assert (before.memory.mode, before.memory.runs) == ("analytical", 0)
    taught = experience_of(demand, before, *[1.3] * 10, slowness=2.0)
    (same,) = plan_job(demand, [roomy], experience=taught).plans
    assert same.id == before.id
    assert (same.memory.mode, same.memory.runs) == ("learned", 10)
    terms = {term.name: term.size_bytes for term in same.memory.terms}
    assert sum(terms.values()) == same.memory.allocated.expected
    assert uncorrected(same.memory) == before.memory.allocated.expected
    assert terms[LEARNED_TERM] == pytest.approx(0.27 * uncorrected(same.memory), rel=0.1)
    assert same.speed.runs == 10
    assert same.speed.step_s == pytest.approx(before.speed.step_s * same.speed.correction)
    assert same.speed.tokens_per_s < before.speed.tokens_per_s
    assert sum(part for _, part in same.speed.parts_s) == pytest.approx(same.speed.step_s)


def test_what_takes_more_than_thought_stops_fitting():
    pins = {"gpus": 1, "zero_stage": 1, "micro_batch_size": 8, "offload": "none"}
    demand = setup(resources=pins)
    (before,) = plan_job(demand, [emulated("a", 400)]).plans
    tight = emulated("a", before.memory.required.high // 2**20 + 1)
    assert plan_job(demand, [tight]).feasible
    taught = experience_of(demand, before, 1.3, 1.3, kind=tight)
    assert not plan_job(demand, [tight], experience=taught).feasible


def test_what_takes_less_than_thought_begins_to_fit():
    pins = {"gpus": 1, "zero_stage": 1, "micro_batch_size": 8, "offload": "none"}
    demand = setup(resources=pins)
    (before,) = plan_job(demand, [emulated("a", 400)]).plans
    tight = emulated("a", int(before.memory.required.high * 0.9) // 2**20)
    assert not plan_job(demand, [tight]).feasible
    taught = experience_of(demand, before, *[0.7] * 6, kind=tight)
    (after,) = plan_job(demand, [tight], experience=taught).plans
    assert after.memory.allocated.expected < before.memory.allocated.expected


def test_the_chance_of_running_out_follows_room_and_runs():
    demand = setup(resources={"gpus": 1, "zero_stage": 1, "micro_batch_size": 8})
    (roomy,) = plan_job(demand, [emulated("a", 400)]).plans
    tight = emulated("a", roomy.memory.required.high // 2**20 + 1)
    (full,) = plan_job(demand, [tight]).plans
    assert roomy.oom_probability < 1e-6 < 0.001 < full.oom_probability < 0.05
    calm = experience_of(demand, full, *[1.0] * 20, kind=tight)
    (known,) = plan_job(demand, [tight], experience=calm).plans
    assert known.oom_probability < full.oom_probability
    wild = experience_of(demand, roomy, *[0.7, 1.4] * 5)
    (unsure,) = plan_job(demand, [emulated("a", 400)], experience=wild).plans
    assert unsure.memory.allocated.high > roomy.memory.allocated.high


def test_a_gpu_s_chance_counts_what_lies_around_the_tensors():
    demand = setup(model="gpt2", resources={"gpus": 1})
    chances = [
        plan_job(demand, [gpu("NVIDIA A30", gib, 1)]).plans[0].oom_probability for gib in (7, 24)
    ]
    assert chances[0] > chances[1]


def test_a_job_s_own_demand_is_a_floor():
    demand = setup(resources={"gpus": 1, "micro_batch_size": 1})
    plan = plan_job(demand, [KIND]).plans[0]
    taught = experience_of(demand, plan, *[1.2] * 10)
    demanded = plan_job(demand, [KIND], experience=taught, demanded=1.5).plans
    same = next(found for found in demanded if found.id == plan.id)
    assert {term.name for term in same.memory.terms} >= {CORRECTION_TERM}
    assert same.memory.allocated.expected == round(1.5 * uncorrected(same.memory))


def test_drift_is_seen_and_ends():
    calm = [run(n) for n in range(20)]
    off = [run(20 + n, ratio=1.3) for n in range(20)]
    assert Experience(calm).drifts() == ()
    (drift,) = Experience([*calm, *off]).drifts()
    assert (drift.runs, drift.outside, drift.ratio) == (20, 20, 1.3)
    assert "emulated-a" in drift.group
    back = [replace(known, time_ms=50 + n) for n, known in enumerate(calm)]
    assert Experience([*calm, *off, *back]).drifts() == ()
    assert Experience(off[:5]).drifts() == ()  # too few to tell
