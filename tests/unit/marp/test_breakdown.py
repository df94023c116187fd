import pytest
from tests.support.planning import setup

from frenzy_marp.core.breakdown import breakdown, exact_plan, smallest_cards
from frenzy_marp.core.memory.analytical import predict_peak
from frenzy_shared.catalog.gpus import find_gpu
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_shared.errors import InvalidSpec

A30, T4 = find_gpu("A30"), find_gpu("T4")


def test_what_is_not_pinned_is_simple():
    plan = exact_plan(setup(global_batch_size=6), A30)
    assert (plan.data, plan.zero_stage, plan.micro_batch_size) == (1, 1, 6)
    assert plan.gradient_accumulation_steps == 1
    assert plan.precision is Precision.BF16
    assert exact_plan(setup(), T4).precision is Precision.FP16
    assert exact_plan(setup(resources={"zero_stage": 0}), None).zero_stage == 0


def test_the_highest_moment_is_the_peak():
    demand = setup(model="gpt2", resources={"gpus": 2, "micro_batch_size": 2, "zero_stage": 2})
    plan = exact_plan(demand, A30)
    found = breakdown(demand, plan, A30)
    peak = predict_peak(demand.model, demand.attention, demand.sequence_length, plan, cuda=True)
    highest = max(found.moments, key=lambda moment: moment.allocated)
    assert highest == peak
    assert found.memory.moment == peak.moment
    assert [moment.moment for moment in found.moments] == [
        "initialisation",
        "the last layer's forward",
        "the loss",
        "a layer's backward",
        "the embedding's backward",
        "gradient reduction",
        "the optimizer step",
    ]


def test_checkpointing_lowers_the_moments_of_the_layers_only():
    def moments(checkpointing):
        demand = setup(model="gpt2", gradient_checkpointing=checkpointing)
        found = breakdown(demand, exact_plan(demand, A30), A30)
        return {moment.moment: moment.allocated for moment in found.moments}

    none, full = moments(ActivationCheckpointing.NONE), moments(ActivationCheckpointing.FULL)
    lower = {name for name in none if full[name] < none[name]}
    assert lower == {"the last layer's forward", "the loss", "a layer's backward"}


def test_the_smallest_cards_hold_it_and_have_the_precision():
    demand = setup(model="gpt2-large")
    plan = exact_plan(demand, None)
    cards = smallest_cards(demand, plan, 3)
    assert len(cards) == 3
    for card in cards:
        assert card.bf16
        assert breakdown(demand, plan, card).memory.required.high <= card.memory_bytes
    sizes = [card.memory_bytes for card in cards]
    assert sizes == sorted(sizes)


def test_beyond_any_device_there_is_one_moment():
    huge = {
        "model_type": "llama",
        "hidden_size": 2**24,
        "intermediate_size": 2**24,
        "num_hidden_layers": 4096,
        "num_attention_heads": 2**20,
        "vocab_size": 2**24,
    }
    demand = setup(model=huge, sequence_length=2**20, attention="eager")
    plan = exact_plan(demand, None)
    assert [moment.moment for moment in breakdown(demand, plan, None).moments] == ["every moment"]
    assert smallest_cards(demand, plan, 3) == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch_size": 7, "resources": {"gpus": 2}}, "split evenly over 2"),
        ({"global_batch_size": 1, "resources": {"gpus": 2}}, "split evenly over 2"),
        ({"resources": {"micro_batch_size": 3}}, "does not divide the 8"),
        ({"precision": "bf16"}, "T4 does not compute in bf16"),
    ],
)
def test_contradictions_are_errors(changes, message):
    with pytest.raises(InvalidSpec, match=message):
        exact_plan(setup(**changes), T4)
