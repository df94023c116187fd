"""Scores, verdicts, and corrections that never see the group they are used on."""

import json
import math

import pytest
from tests.support.marp_cases import PARAMETERS, case_fields

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import parse_case
from frenzy_marp.core.cases.censored import Outcome, outcomes, required_shift
from frenzy_marp.core.cases.corrections import LARGEST_SHIFT, Errors, correction_keys
from frenzy_marp.core.cases.document import document
from frenzy_marp.core.cases.fitting import Residual, fit, left_out
from frenzy_marp.core.cases.learned import as_json, from_json, shipped
from frenzy_marp.core.cases.lines import Refused
from frenzy_marp.core.cases.modes import Mode, predict
from frenzy_marp.core.cases.scoring import accuracy
from frenzy_marp.core.cases.scoring import score as compare

GIB = 2**30
STEP_GIB = 10 * PARAMETERS / GIB
ALLOCATED = word.Metric.ALLOCATED


def score(cases):
    return compare("analytical", cases, [predict(case.run, Mode.ANALYTICAL) for case in cases])


def measured(group, factor, **sections):
    reading = STEP_GIB * factor
    return parse_case(case_fields(group=group, readings={"allocated": reading}, **sections))


def test_accuracy_is_one_minus_the_relative_error():
    report = score([measured("a", 1.0), measured("a", 1.25)])
    assert [row.accuracy for row in report.rows] == pytest.approx([1.0, 0.8])


def test_macro_counts_every_group_once():
    rows = score([measured("a", 1.0), measured("a", 1.0), measured("b", 1.25)]).rows
    assert accuracy(rows).macro == pytest.approx(0.9)
    assert accuracy(rows).mean == pytest.approx((1 + 1 + 0.8) / 3)


def test_accuracy_is_never_negative():
    assert score([measured("a", 0.1)]).rows[0].accuracy == 0.0


def test_predictions_read_nothing_that_only_names_a_row():
    plain = parse_case(case_fields())
    named = parse_case(case_fields(id="x", group="y", source="z", notes="UNEXPLAINED: 99 GiB"))
    assert predict(plain.run, Mode.LEARNED) == predict(named.run, Mode.LEARNED)


def test_a_group_is_predicted_without_its_own_readings():
    others = [measured("b", 1.1), measured("c", 1.12)]

    def shift_of_a(factor):
        cases = [measured("a", factor), *others]
        return left_out(cases)["a"].shift(ALLOCATED, correction_keys(cases[0].run))

    assert shift_of_a(1.0) == shift_of_a(3.0) > 0  # the others read above the formula


def residual(group, log_ratio, *keys):
    return Residual(ALLOCATED, keys, group, log_ratio, 0.1)


def test_what_one_source_saw_moves_nothing_but_that_exact_set_up():
    general, exact = ("hf_trainer",), ("hf_trainer", "lora", "A100")
    learned = fit([residual("odd", 0.1, general, exact)] * 4)
    assert learned.shift(ALLOCATED, (general,)) == 0
    assert learned.shift(ALLOCATED, (general, exact)) == pytest.approx(0.05)  # half of it


def test_sources_that_disagree_cancel():
    key = ("hf_trainer",)
    rows = [residual("a", 0.1, key, ("x",)), residual("b", -0.02, key, ("y",))]
    assert fit(rows).shift(ALLOCATED, (key,)) == 0


def test_no_correction_is_larger_than_a_quarter():
    key = ("hf_trainer",)
    assert fit([residual("odd", 3.0, key)] * 50).shift(ALLOCATED, (key,)) == LARGEST_SHIFT


def test_errors_are_those_of_rows_that_taught_nothing():
    key, exact = ("hf_trainer",), ("hf_trainer", "A100")
    rows = [residual("a", 0.1, key, exact)] * 3 + [residual("b", 0.0, key, ("other",))] * 3
    assert fit(rows).errors[ALLOCATED].quantiles[-1] == pytest.approx(1.0)  # 0.1 in scales of 0.1


def test_the_share_above_an_error_falls_from_one_to_nothing():
    errors = shipped(shifted=False).errors[ALLOCATED]
    shares = [errors.above(error) for error in (-50, -1, 0, 0.5, 1, 2, 50)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(1)
    assert shares[-1] == pytest.approx(0, abs=1e-9)
    assert errors.above(errors.quantile(0.95)) == pytest.approx(0.05)


def test_errors_that_never_varied_have_a_step():
    errors = Errors((1.0,) * 13)
    assert errors.above(0.9) > 0.99
    assert errors.above(1.1) < 0.01


def test_corrections_survive_their_file():
    known = fit([residual("a", 0.1234567, ("k",), ("exact", "set-up"))] * 2)
    again = from_json(json.loads(json.dumps(as_json(known))))
    assert again.shift(ALLOCATED, (("exact", "set-up"),)) == pytest.approx(
        known.shift(ALLOCATED, (("exact", "set-up"),)), abs=1e-4
    )


def test_what_is_shipped_names_no_source():
    known = shipped(shifted=True)
    assert known.shifts
    assert all(len(key) in (1, 4, 9) for _, key in known.shifts)
    assert all(abs(shift) <= 2 * LARGEST_SHIFT for shift in known.shifts.values())


def test_verdicts_compare_with_the_card():
    small = {"capacity_gib": 0.5}
    oom = case_fields(measured={"outcome": "oom"}, readings={}, gpu=small)
    verdicts = score([parse_case(oom), measured("a", 1.0)]).verdicts
    assert (verdicts.oom, verdicts.fits, verdicts.unsafe, verdicts.false_refusals) == (1, 1, 0, 0)
    assert verdicts.balanced_accuracy == 1.0
    assert (verdicts.oom_high, verdicts.unsafe_high) == (1, 0)


def test_p_oom_grows_as_the_card_shrinks():
    def chance(capacity):
        return predict(
            parse_case(case_fields(gpu={"capacity_gib": capacity})).run, Mode.ANALYTICAL
        ).p_oom

    assert chance(79.15) < 0.01 < chance(STEP_GIB + 0.5) < 0.99 < chance(0.5)


def test_bounds_are_in_order_and_device_is_above_allocated():
    found = predict(parse_case(case_fields()).run, Mode.ANALYTICAL)
    for part in (found.allocated, found.reserved, found.device, found.required):
        assert part.low <= part.expected <= part.high
    assert found.allocated.expected <= found.reserved.expected < found.device.expected


def test_the_document_names_metrics_moment_and_terms():
    made = document([measured("a", 1.0)], Mode.ANALYTICAL)
    case = made["cases"][0]
    assert case["predicted_gib"] == pytest.approx(STEP_GIB, abs=1e-3)
    assert case["moment"] == "optimizer step"
    assert set(case["by_metric"]) == {"allocated", "reserved", "device", "required"}
    assert made["summary"]["metrics"]["allocated"]["n"] == 1
    json.dumps(made)


def test_refused_rows_are_listed_and_count_as_missed():
    refused = Refused("bad", "parallelism.tensor: 3 does not divide 8 heads", ((ALLOCATED, 2.0),))
    made = document([measured("a", 1.0), refused], Mode.ANALYTICAL)
    assert made["cases"][1] == {"id": "bad", "unsupported": refused.reason}
    assert made["summary"]["metrics"]["allocated"]["mean"] == pytest.approx(0.5)
    assert made["summary"]["metrics"]["allocated"]["unsupported"] == 1


def test_without_measurements_there_are_predictions_and_no_scores():
    made = document([parse_case(case_fields(readings={}))], Mode.LEARNED)
    assert made["cases"][0]["predicted_gib"] > 0
    assert made["summary"]["metrics"] == {}
    assert made["summary"]["verdicts"]["balanced_accuracy"] is None


def test_the_published_formula_knows_one_number():
    found = predict(parse_case(case_fields()).run, Mode.FRENZY_2024)
    assert found.allocated == found.device == found.required
    assert found.p_oom in (0.0, 1.0)
    assert not math.isnan(found.allocated.expected)


def ended(*rooms, ran_out, group="a"):
    return [Outcome(group, ran_out, room) for room in rooms]


def test_runs_that_died_although_they_should_fit_raise_what_is_required():
    errors = shipped(shifted=False).errors[ALLOCATED]
    fitted = ended(*[6.0] * 9, ran_out=False, group="b")
    expected = required_shift(fitted + ended(-4.0, -5.0, -6.0, ran_out=True), errors)
    assert expected == 0.0
    assert required_shift(fitted + ended(2.5, 2.6, 3.0, ran_out=True), errors) > 0.5
    assert required_shift(fitted, errors) == 0.0  # one kind of outcome alone says nothing


def test_one_death_far_from_the_limit_is_taken_for_a_mistake():
    errors = shipped(shifted=False).errors[ALLOCATED]
    rows = ended(*[1.0] * 20, ran_out=False) + ended(-4.0, 40.0, ran_out=True, group="b")
    assert required_shift(rows, errors) < 0.3


def test_outcomes_are_bounds_on_what_is_required():
    small = {"capacity_gib": STEP_GIB / 2}
    died = parse_case(case_fields(measured={"outcome": "oom"}, readings={}, gpu=small))
    found = outcomes([died, measured("a", 1.0)])
    assert [one.ran_out for one in found] == [True, False]
    assert found[0].room < 0 < found[1].room
