"""Dropout inside adapters, beside what DeepSpeed's engine took in traces of the same runs."""

import pytest
from tests.support.planning import setup

from frenzy_marp.core.breakdown import exact_plan
from frenzy_marp.core.memory.analytical import predict_peak

LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1376,
    "num_hidden_layers": 3,
    "vocab_size": 2000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def peak(dropout, *, cuda=False, stage=1, devices=1, **fields):
    demand = setup(
        model=LLAMA,
        method="lora",
        lora={"rank": 16, "dropout": dropout},
        sequence_length=256,
        global_batch_size=4 * devices,
        resources={"gpus": devices, "zero_stage": stage, "micro_batch_size": 4},
        **fields,
    )
    plan = exact_plan(demand, None)
    return predict_peak(demand.model, demand.attention, 256, plan, cuda=cuda).allocated


@pytest.mark.parametrize(
    ("traced", "run"),
    [
        (115_311_616, {"dropout": 0.0}),
        (152_077_312, {"dropout": 0.1}),
        (153_711_616, {"dropout": 0.1, "stage": 3, "devices": 2}),
        (261_532_672, {"dropout": 0.1, "precision": "fp32"}),
        (73_288_704, {"dropout": 0.1, "gradient_checkpointing": "full"}),
    ],
)
def test_factors_of_dropout_are_counted_where_the_engine_keeps_them(traced, run):
    assert peak(**run) == pytest.approx(traced, rel=0.015)


def test_a_gpu_keeps_a_byte_for_every_value():
    tokens, layers = 4 * 256, 3
    adapted = (5 + 1) * 512 + 1376  # queries, keys, values, gate, up; output; down
    fewer = tokens * (layers * adapted - 3 * 512)  # but those that the first layer never keeps
    assert peak(0.1) - peak(0.1, cuda=True) == pytest.approx(fewer, rel=0.01)
