"""The case terms against the exact tape that models the built-in trainer: two codes, one truth."""

import itertools

import pytest
from tests.support.marp_cases import case_fields

from frenzy_marp.core.cases.activations import block_bytes
from frenzy_marp.core.cases.case import parse_case
from frenzy_marp.core.memory.profiles import block_profile
from frenzy_marp.core.memory.shape import Shape
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture
from frenzy_shared.domain.plan import ActivationCheckpointing
from frenzy_shared.domain.structure import GPT2, LLAMA

LENGTH, SEQUENCES = 1024, 2
MODELS = {
    "multi-head": (Family.LLAMA, 4096, 32, 32, 11008),
    "grouped": (Family.LLAMA, 4096, 32, 8, 14336),
    "gpt2": (Family.GPT2, 1024, 16, 16, 4096),
}


def architecture(family, hidden, heads, kv_heads, inner) -> ModelArchitecture:
    gpt2 = family is Family.GPT2
    return ModelArchitecture(
        family=family,
        structure=GPT2 if gpt2 else LLAMA,
        hidden_size=hidden,
        num_layers=4,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate_size=inner,
        vocab_size=32000,
        max_positions=LENGTH if gpt2 else None,
        rotary_dim=0 if gpt2 else hidden // heads,
        tied_embeddings=False,
        attention_bias=gpt2,
        output_bias=gpt2,
        mlp_bias=gpt2,
        activation="gelu_new" if gpt2 else "silu",
    )


def terms(model, attention, element, checkpointing):
    gpt2 = model.family is Family.GPT2
    dtype = "bf16" if element == 2 else "fp32"
    fields = case_fields(
        model={
            "family": "gpt2" if gpt2 else "llama",
            "hidden_size": model.hidden_size,
            "num_heads": model.num_heads,
            "num_kv_heads": model.num_kv_heads,
            "head_dim": model.head_dim,
            "intermediate_size": model.intermediate_size,
            "gated_mlp": not gpt2,
            "norm": "layer" if gpt2 else "rms",
            "max_positions": model.max_positions,
        },
        training={
            "sequence_length": LENGTH,
            "micro_batch_size": SEQUENCES,
            "attention": attention.value,
            "param_dtype": dtype,
            "compute_dtype": dtype,
            "activation_checkpointing": checkpointing,
            "torch_version": "2.13.0",
        },
    )
    return block_bytes(parse_case(fields).run)


@pytest.mark.parametrize(
    ("name", "attention", "element"),
    list(itertools.product(MODELS, (Attention.SDPA, Attention.EAGER), (2, 4))),
)
@pytest.mark.parametrize("checkpointing", list(ActivationCheckpointing))
def test_terms_agree_with_the_tape(name, attention, element, checkpointing):
    model = architecture(*MODELS[name])
    shape = Shape(model, attention, SEQUENCES, LENGTH, element)
    exact = block_profile(shape, checkpointing, gathers=False)
    full = checkpointing is ActivationCheckpointing.FULL
    found = terms(model, attention, element, "full" if full else "none")
    tokens = SEQUENCES * LENGTH
    assert found.kept * tokens == pytest.approx(exact.kept, rel=0.005)
    peak = max(exact.backward.peaks + exact.backward.handing)
    assert (found.kept + found.work) * tokens == pytest.approx(peak, rel=0.02)
