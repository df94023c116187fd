"""Layers split over ranks (DeepSpeed's AutoTP): what one rank of a group takes, by tracing."""

import pytest

from frenzy_marp.adapters.traced import compose_estimate, trace_estimate
from frenzy_marp.adapters.tracing import Tracer
from frenzy_shared.errors import FrenzyError, InvalidSpec
from frenzy_shared.messages.spec import parse_spec

TIED = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}

pytestmark = pytest.mark.timeout(400)  # engines on a loaded machine


def spec(model=TIED, **fields):
    return parse_spec(
        {
            "model": model,
            "data": "node:/text",
            "sequence_length": 64,
            "global_batch_size": 4,
            "max_steps": 2,
            "precision": "bf16",
            "resources": {"gpus": 4, "tensor": 2},
            **fields,
        }
    )


def test_a_rank_of_a_group_has_its_share_of_every_layer():
    found = trace_estimate(Tracer(seconds=300), spec(), None).found
    plan = found.plan
    assert (plan.data, plan.tensor, plan.micro_batch_size) == (2, 2, 2)
    assert plan.global_batch_size == 4
    weights = next(
        term.size_bytes
        for moment in found.moments
        for term in moment.terms
        if term.name == "weights" and moment.moment == "forward"
    )
    layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 688  # matrices, whole
    rest = 512 * 256 + 4 * 2 * 256 + 256  # the vocabulary and norms, on every rank
    assert weights == pytest.approx(2 * (4 * layer / 2 + rest), rel=0.001)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"resources": {"gpus": 3, "tensor": 3}}, "3 does not divide the 8 attention heads"),
        ({"resources": {"gpus": 8, "tensor": 8}}, "8 does not divide the 4 key and value heads"),
        ({"resources": {"gpus": 3, "tensor": 2}}, "3 devices cannot be groups of 2"),
        ({"global_batch_size": 3}, "cannot be split evenly over 2 groups of 2 devices"),
        ({"method": "lora"}, "adapters are not split"),
        ({"loss": "chunked"}, "not with loss chunked"),
        ({"resources": {"pipeline": 2}}, "pipeline parallelism is not in this release"),
    ],
)
def test_what_cannot_be_split_is_refused_before_anything_runs(fields, text):
    with pytest.raises(InvalidSpec, match=text):
        trace_estimate(Tracer(command=("/nowhere/python",)), spec(**fields), None)


def test_a_layer_alone_is_not_split():
    with pytest.raises(FrenzyError, match="not split over devices"):
        compose_estimate(Tracer(command=("/nowhere/python",)), spec(), None)
