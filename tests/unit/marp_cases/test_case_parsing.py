"""Closed enumerations and clear errors."""

import json
import random
import time

import pytest
from tests.support.marp_cases import case_fields

from frenzy_marp.core.cases.case import parse_case
from frenzy_marp.core.cases.document import document
from frenzy_marp.core.cases.lines import LONGEST_LINE, Refused, read_case, read_cases
from frenzy_marp.core.cases.modes import Mode, predict
from frenzy_marp.core.cases.reading import CaseError


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"family": "lama"}}, "model.family: one of gpt2, "),
        ({"training": {"optimizer": "adam"}}, "training.optimizer: one of adamw, "),
        ({"model": {"hidden_size": 0}}, "model.hidden_size: a whole number from 1"),
        ({"model": {"num_layers": True}}, "model.num_layers: a whole number from 1"),
        ({"model": {"num_layers": 10**30}}, "model.num_layers: a whole number from 1"),
        ({"parallelism": {"tensor": None}}, "parallelism.tensor: missing"),
        ({"parallelism": {"pipeline": 2, "pipeline_layers": [4]}}, "one number for each stage"),
        ({"readings": {"free": 1.0}}, "readings: 'free' is no metric"),
        ({"readings": {"allocated": -1}}, "readings.allocated: a number, not negative"),
        ({"training": {"tokens_effective": {"low": 9, "high": 3}}}, "low is above high"),
        ({"model": 3}, "model: an object is needed"),
        ({"training": {"checkpointing_detail": "every 1" + "1" * 5000}}, "at most 1000 characters"),
    ],
)
def test_what_is_wrong_is_named(sections, message):
    with pytest.raises(CaseError) as raised:
        parse_case(case_fields(**sections))
    assert message in str(raised.value)


@pytest.mark.parametrize("value", [None, [], "case", 1])
def test_a_case_is_an_object(value):
    with pytest.raises(CaseError):
        parse_case(value)


def test_null_is_what_the_source_does_not_say():
    training = {"torch_version": None, "compile": None, "dropout": None, "logits_dtype": None}
    parsed = parse_case(case_fields(training=training)).run.training
    assert (parsed.torch_version, parsed.compiled, parsed.dropout) == ("", False, 0.0)


def test_tokens_are_stated_or_a_range_or_batch_times_length():
    def tokens(value):
        training = {"micro_batch_size": 2, "tokens_effective": value}
        parsed = parse_case(case_fields(training=training)).run.training
        return parsed.tokens_low, parsed.tokens_high

    assert tokens(None) == (128, 128)
    assert tokens(100) == (100, 100)
    assert tokens({"low": 90, "high": 128}) == (90, 128)


def test_what_a_row_of_ones_own_may_leave_out():
    fields = case_fields(measured={"metric": "device", "gib": 3.5})
    for name in ("id", "source", "group", "confidence", "readings", "metric_guess", "unexplained"):
        del fields[name]
    found = parse_case(fields, "line 7")
    assert found.label.id == "line 7"
    assert [(metric.value, size) for metric, size in found.readings] == [("device", 3.5)]


SPLIT = {"data": 1, "tensor": 1, "pipeline": 1}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"parallelism": {**SPLIT, "pipeline": 8}, "gpu": {"count": 8}}, "8 stages"),
        ({"parallelism": {**SPLIT, "tensor": 3}, "gpu": {"count": 3}}, "3 does not divide 8 heads"),
        ({"parallelism": {**SPLIT, "data": 4}}, "is 4, but gpu.count is 1"),
        ({"parallelism": {"shard_degree": 2}}, "shard_degree: 2 is more than"),
        ({"parallelism": {"expert": 2}}, "the model has no experts"),
        ({"model": {"num_kv_heads": 3}}, "3 do not divide 8 heads"),
        ({"model": {"num_experts": 8, "experts_per_token": 0}}, "1 to num_experts (8)"),
        ({"model": {"num_layers": 10**12}}, "at most 1000000"),
        ({"model": {"num_dense_layers": 9}}, "more than num_layers"),
        ({"training": {"method": "lora", "lora": None}}, "training.lora: missing"),
        ({"training": {"optimizer": "adamx"}}, "training.optimizer: one of"),
        ({"model": {"hidden_size": None}}, "model.hidden_size: missing"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(sections, reason):
    found = read_case(case_fields(**sections))
    assert isinstance(found, Refused)
    assert found.id == "hand-1"
    assert reason in found.reason
    assert found.readings  # they count as missed


@pytest.mark.parametrize("name", ["hidden_size", "intermediate_size", "vocab_size"])
def test_huge_sizes_are_answered_without_overflow(name):
    found = read_case(case_fields(model={name: 10**12, "num_parameters": 10**18}))
    assert predict(found.run, Mode.LEARNED).allocated.expected > 1e6


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: not JSON"),
        (b"[1]", "line 2: an object is needed"),
        (b"[" * 100_000, "line 2: nested too deeply"),
        (b"\xff", "line 2: not JSON"),
        (b'{"id": ' + b"9" * 5000 + b"}", "line 2: not JSON"),
        (b" " * LONGEST_LINE + b"{}", "line 2: longer than"),
    ],
    ids=["broken", "no object", "deep", "no text", "long number", "long"],
)
def test_a_line_that_is_no_object_is_named(line, message):
    with pytest.raises(CaseError) as raised:
        list(read_cases([json.dumps(case_fields()).encode(), line]))
    assert message in str(raised.value)


ODD = [None, 0, -1, 1, 3, 2**61, 1e308, float("nan"), True, "", "x", [], [0], {}, "nf4", "lora"]
ODD += ["zero3", "fsdp", "fp8", "full", "none", "2.4", "t5", "int8", {"low": 1, "high": 10**15}]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_row_holds_the_answer_is_a_number_or_a_reason(seed):
    chosen = random.Random(seed)
    for _ in range(15):
        fields = case_fields()
        for _ in range(chosen.randint(1, 4)):
            part = fields[chosen.choice(["model", "training", "parallelism", "gpu", "readings"])]
            part[chosen.choice(list(part))] = chosen.choice(ODD)
        for mode in Mode:
            json.dumps(document([read_case(fields)], mode), allow_nan=False)


def test_a_long_detail_costs_no_time():
    started = time.thread_time()
    for detail in ("every " + "1" * 900 + "th layer", "[" + "core " * 150, "every 0th layer"):
        training = {"activation_checkpointing": "selective", "checkpointing_detail": detail}
        predict(read_case(case_fields(training=training)).run, Mode.ANALYTICAL)
    assert time.thread_time() - started < 1
