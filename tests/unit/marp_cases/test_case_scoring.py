"""Scores, verdicts, and corrections that never see the group they are used on."""

import json

import pytest
from benchmarks.memory_public.__main__ import main, read_cases
from tests.support.marp_cases import PARAMETERS, case_fields

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import parse_case
from frenzy_marp.core.cases.corrections import Residual, fit
from frenzy_marp.core.cases.document import document
from frenzy_marp.core.cases.estimate import estimate_run
from frenzy_marp.core.cases.scoring import Mode, accuracy, score

GIB = 2**30
STEP_GIB = 10 * PARAMETERS / GIB


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
    assert estimate_run(plain.run) == estimate_run(named.run)


def test_a_group_is_predicted_without_its_own_readings():
    others = [measured("b", 1.1), measured("c", 1.12)]
    honest = score([measured("a", 1.0), *others], Mode.CORRECTED).rows[0]
    wild = score([measured("a", 3.0), *others], Mode.CORRECTED).rows[0]
    assert honest.predicted == wild.predicted
    assert honest.predicted.expected > STEP_GIB  # the others read above the formula


def test_one_odd_group_moves_a_correction_little():
    keys = (("hf_trainer",),)
    odd = Residual(word.Metric.ALLOCATED, keys, "odd", 3.0)
    shift = fit([odd]).factor(word.Metric.ALLOCATED, keys)
    assert 1.0 < shift <= 1.25


def test_verdicts_compare_with_the_card():
    small = {"capacity_gib": 0.5}
    oom = case_fields(measured={"outcome": "oom"}, readings={}, gpu=small)
    verdicts = score([parse_case(oom), measured("a", 1.0)]).verdicts
    assert (verdicts.oom, verdicts.fits, verdicts.unsafe, verdicts.false_refusals) == (1, 1, 0, 0)
    assert verdicts.balanced_accuracy == 1.0


def test_p_oom_grows_as_the_card_shrinks():
    def chance(capacity):
        return estimate_run(parse_case(case_fields(gpu={"capacity_gib": capacity})).run).p_oom

    assert chance(79.15) < 0.01 < chance(STEP_GIB + 0.5) < 0.99 < chance(0.5)


def test_bounds_are_in_order_and_device_is_above_allocated():
    found = estimate_run(parse_case(case_fields()).run)
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


def test_the_benchmark_says_when_it_has_no_cases(monkeypatch, capsys):
    monkeypatch.delenv("FRENZY_CASES", raising=False)
    monkeypatch.setattr("sys.argv", ["memory_public"])
    assert main() == 0
    assert "skipped: no cases" in capsys.readouterr().out


def test_the_benchmark_names_the_line_it_cannot_read(monkeypatch, capsys, tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case_fields()) + "\n" + '{"id": "broken"}\n')
    monkeypatch.setattr("sys.argv", ["memory_public", "--cases", str(path)])
    assert main() == 2
    assert "cases.jsonl:2" in capsys.readouterr().err


def test_the_benchmark_prints_the_modes_side_by_side(monkeypatch, capsys, tmp_path):
    path = tmp_path / "cases.jsonl"
    rows = [case_fields(id=str(n), readings={"allocated": STEP_GIB}) for n in range(8)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    monkeypatch.setattr("sys.argv", ["memory_public", "--cases", str(path), "--worst", "1"])
    assert len(read_cases(path)) == 8
    assert main() == 0
    out = capsys.readouterr().out
    for mode in Mode:
        assert mode.value in out
