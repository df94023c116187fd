"""Closed enumerations and clear errors."""

import pytest
from tests.support.marp_cases import case_fields

from frenzy_marp.core.cases.case import parse_case
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
