"""Centre, band and chance: what errors teach, and what they must not."""

import random
from math import exp, inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frenzy_marp.core.learning_errors import (
    MAX_FACTOR,
    NOTHING_LEARNED,
    PRIOR_ERROR,
    Correction,
    LogError,
    centre,
    correction,
)

exactly, at_least, at_most = LogError.exactly, LogError.at_least, LogError.at_most


def same(*errors):
    """All errors under the very same conditions."""
    return [errors, errors, errors]


def test_without_runs_nothing_is_corrected():
    assert correction(same()) == NOTHING_LEARNED == Correction()


def test_the_centre_nears_what_is_observed_with_every_run():
    factors = [correction(same(*[exactly(2.0)] * runs)).factor for runs in (1, 2, 5, 20, 1000)]
    assert factors == sorted(factors)
    assert 1.3 < factors[0] < 1.6  # one run is believed by half
    assert factors[-1] == pytest.approx(2.0, rel=0.001)


def test_one_wild_run_among_many_moves_nothing():
    calm = [exactly(1.01)] * 20
    moved, still = correction(same(*calm, exactly(40.0))), correction(same(*calm))
    assert moved.factor == pytest.approx(still.factor, rel=1e-4)
    assert moved.above <= 0.5  # or one run would make every plan impossible


def test_runs_of_other_models_teach_less_than_ones_own():
    far = correction([[exactly(1.5)] * 5, [], []])
    near = correction([[exactly(1.5)] * 5, [exactly(1.5)] * 5, []])
    own = correction(same(*[exactly(1.5)] * 5))
    assert 1.0 < far.factor < near.factor < own.factor < 1.5


def test_corrections_are_bounded():
    assert centre(same(*[exactly(1000.0)] * 100)) == pytest.approx(log(MAX_FACTOR))
    assert centre(same(*[exactly(0.001)] * 100)) == pytest.approx(-log(MAX_FACTOR))


def test_an_out_of_memory_counts_only_above_what_was_measured():
    measured = [exactly(1.2)] * 4
    assert centre(same(*measured, at_least(0.9))) == centre(same(*measured))
    assert centre(same(at_least(1.5))) > 0
    assert centre(same(at_least(0.8))) == 0


def test_a_survival_counts_only_below_what_was_measured():
    assert centre(same(at_most(1.6))) == 0
    assert centre(same(at_most(0.6))) < 0


def test_the_band_covers_what_is_left_and_narrows_with_runs_of_the_same_plan():
    few = correction(same(*[exactly(1.0)] * 3))
    many = correction(same(*[exactly(1.0)] * 30))
    assert 0 < many.above < 0.01 < few.above < PRIOR_ERROR
    spread = correction(same(*[exactly(1 + n / 100) for n in range(-10, 11)]))
    assert spread.factor * (1 + spread.above) >= 1.10
    assert spread.factor * (1 - spread.below) <= 0.90


def test_runs_of_other_plans_and_models_do_not_narrow_the_band():
    for others in ([[exactly(1.0)] * 30, [], []], [[exactly(1.0)] * 30, [exactly(1.0)] * 30, []]):
        assert correction(others).above == pytest.approx(PRIOR_ERROR)


@given(st.lists(st.floats(0.9, 1.2), min_size=1, max_size=60))
def test_no_run_of_one_s_own_is_above_the_band(ratios):
    found = correction(same(*[exactly(ratio) for ratio in ratios]))
    assert max(ratios) <= found.factor * (1 + found.above) * 1.000001
    assert min(ratios) >= found.factor * (1 - found.below) * 0.999999


def test_a_further_run_is_rarely_above_the_band():
    draw = random.Random(1)
    above = trials = 0
    for _ in range(400):
        ratios = [exp(draw.gauss(0.05, 0.03)) for _ in range(21)]
        found = correction(same(*[exactly(ratio) for ratio in ratios[:20]]))
        above += ratios[20] > found.factor * (1 + found.above)
        trials += 1
    assert above / trials <= 0.02


def test_the_chance_falls_with_room():
    chances = [Correction().chance_beyond(room) for room in (0.0, 0.5, 0.99, 1.0, 1.02, 1.05, 1.3)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == 1.0
    assert chances[3] == 0.5
    assert chances[5] == pytest.approx(1 / 40)


def test_the_chance_falls_with_runs_that_fitted_and_rises_with_those_that_did_not():
    room = 1.06
    believed = Correction().chance_beyond(room)
    fitted = Correction(left=(exactly(1.0),) * 20).chance_beyond(room)
    one = Correction(left=(exactly(1.0),) * 20 + (at_least(1.10),)).chance_beyond(room)
    several = Correction(left=(at_least(1.10),) * 20).chance_beyond(room)
    assert fitted < believed < one < several
    assert several > 0.7


def test_a_bound_below_the_room_says_a_little():
    room = 1.2
    none, below = Correction(), Correction(left=(at_least(1.15),))
    survived, barely = Correction(left=(at_most(1.1),)), Correction(left=(at_most(1.3),))
    assert none.chance_beyond(room) < below.chance_beyond(room) < 0.2
    assert survived.chance_beyond(room) < none.chance_beyond(room)
    assert barely.chance_beyond(room) <= none.chance_beyond(room)


def test_blur_widens_both_sides():
    sharp, blurred = (Correction().chance_beyond(1.1, blur) for blur in (0.0, 0.05))
    assert sharp < blurred < 0.5
    assert Correction().chance_beyond(0.9, 0.05) < Correction().chance_beyond(0.9)


def test_a_demand_takes_the_errors_along():
    learned = correction(same(*[exactly(1.2)] * 10))
    assert learned.at_least(1.0) is learned
    demanded = learned.at_least(1.5)
    assert (demanded.factor, demanded.demanded, demanded.runs) == (1.5, True, 10)
    # The truth is where it was: the same room in bytes has the same votes.
    votes = [c.chance_beyond(1.8 / c.factor) for c in (learned, demanded)]
    assert votes[0] == pytest.approx(votes[1], abs=0.01)


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.01, 20))
def test_chances_are_probabilities(low, high, room):
    low, high = sorted((low, high))
    for error in (LogError(low, high), LogError(low, inf), LogError(-inf, high)):
        assert 0 <= Correction(left=(error,)).chance_beyond(room) <= 1
