"""What is believed before any run of one's own, and how runs take over."""

from math import exp

import pytest
from tests.support.learning import CONDITIONS, run, under
from tests.support.planning import gpu, setup

from frenzy_marp.core.cases.corrections import HIGH, LEVELS, LOW
from frenzy_marp.core.cases.learned import usual_errors
from frenzy_marp.core.learning import Experience
from frenzy_marp.core.learning_errors import NOTHING_LEARNED, RESERVED_PER_ALLOCATED
from frenzy_marp.core.learning_prior import unlearned
from frenzy_marp.core.memory.estimate import DeviceTraits, estimate, oom_probability
from frenzy_marp.core.memory.predictor import Peak
from frenzy_marp.core.planner import plan_job
from frenzy_shared.units import GIB

REAL = under(emulated=False, kind="A100 80GB SXM")
CARD = DeviceTraits(emulated=False, compute_capability="8.0", ranks=1)


def test_the_shipped_errors_are_quantiles_around_nothing():
    errors = usual_errors()
    assert len(errors.quantiles) == len(LEVELS)
    assert list(errors.quantiles) == sorted(errors.quantiles)
    assert abs(errors.quantile(0.5)) < 0.01
    assert errors.quantile(LOW) < -0.02
    assert errors.quantile(HIGH) > 0.02


def test_a_real_gpu_starts_from_what_public_runs_showed():
    believed, errors = unlearned(emulated=False), usual_errors()
    assert (believed.factor, believed.runs) == (1.0, 0)
    assert believed.below == pytest.approx(1 - exp(errors.quantile(LOW)))
    assert believed.above == pytest.approx(exp(errors.quantile(HIGH)) - 1)
    # One of twenty lies above the band.
    assert believed.chance_beyond(1 + believed.above) == pytest.approx(1 - HIGH)


def test_an_emulated_device_starts_from_what_was_measured_on_emulated_ones():
    assert unlearned(emulated=True) == NOTHING_LEARNED
    assert Experience().about(CONDITIONS)[0] == NOTHING_LEARNED
    assert Experience().about(REAL)[0] == unlearned(emulated=False)


def test_a_plan_for_a_real_gpu_shows_that_band():
    plan = plan_job(setup(), [gpu("A100 80GB SXM", 1)]).plans[0]
    allocated, believed = plan.memory.allocated, unlearned(emulated=False)
    assert plan.memory.mode == "analytical"
    assert allocated.high / allocated.expected - 1 == pytest.approx(believed.above, abs=0.01)
    assert 1 - allocated.low / allocated.expected == pytest.approx(believed.below, abs=0.01)


def test_own_runs_take_over_from_public_ones():
    few, many = (
        Experience([run(n, ratio=1.0, conditions=REAL) for n in range(count)]).about(REAL)[0]
        for count in (1, 30)
    )
    believed = unlearned(emulated=False)
    assert many.above < few.above < believed.above
    assert many.above < 0.01


def test_an_estimate_without_experience_is_that_of_the_public_runs():
    peak = Peak(10 * GIB, "loss", ())
    assert estimate(peak, CARD) == estimate(peak, CARD, correction=unlearned(emulated=False))
    near, far = (
        oom_probability(10 * GIB, room * GIB, CARD, unlearned(emulated=False)) for room in (11, 16)
    )
    assert 0 < far < 0.001 < near < 1


def test_what_the_allocator_reserves_is_learned_too():
    runs = [run(n, ratio=1.0, conditions=REAL, reserved=1.4) for n in range(12)]
    learned = Experience(runs).about(REAL)[0]
    assert RESERVED_PER_ALLOCATED < 1.3 < learned.reserved_ratio < 1.4
    memory = estimate(Peak(10 * GIB, "loss", ()), CARD, correction=learned)
    assert memory.reserved.expected == int(memory.allocated.expected * learned.reserved_ratio)
    assert unlearned(emulated=False).reserved_ratio == RESERVED_PER_ALLOCATED
