"""What a block keeps, by family, against traces of transformers' own modules.

Traced with torch.autograd.graph.saved_tensors_hooks on transformers 5.24 and torch 2.13 (CPU): bytes
of distinct storages saved by a forward pass with 3 layers minus one with 2, parameters apart;
dropout 0, hidden 256, 4 heads of 64, inner 768 (BLOOM, Falcon: 1024), 2 x 128 tokens. Unit: bytes a
token over hidden. T5 is the mean of an encoder and a decoder layer. Fused attention falls back to
written-out scores on a CPU in Falcon (one key head), DeepSeek-V3 (MLA) and T5; BLOOM has none.
"""

import pytest
from tests.support.marp_cases import case_fields

from frenzy_marp.core.cases.activations import block_bytes
from frenzy_marp.core.cases.case import parse_case

HIDDEN = 256
LAYER_NORM = {
    "gpt2",
    "gpt_neox",
    "opt",
    "phi",
    "stablelm",
    "starcoder",
    "gpt_bigcode",
    "bert",
    "bloom",
    "falcon",
}
PLAIN_MLP = (LAYER_NORM | {"t5"}) - {"stablelm"}
POSITIONS = {"gpt2", "opt", "gpt_bigcode", "bert"}
HEADS = {"gpt_bigcode": 1, "starcoder": 2, "falcon": 1, "t5": 4, "deepseek": 4}
WIDE = {"bloom", "falcon"}
LATENT = {
    "kv_lora_rank": 64,
    "q_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}

# family: (fused attention, written-out scores) in bf16, then the same in fp32
TRACED = {
    "llama": (46.1, 60.0, 84.1, 96.0),
    "mistral": (46.1, 60.0, 84.1, 96.0),
    "qwen2": (46.1, 60.0, 84.1, 96.0),
    "qwen3": (55.2, 69.1, 96.2, 108.1),
    "gemma": (50.1, 64.1, 84.1, 96.1),
    "gemma2": (None, 84.1, None, 120.1),
    "gpt2": (46.1, 50.0, 92.1, 100.1),
    "gpt_neox": (32.1, 38.0, 64.1, 60.1),
    "opt": (22.1, 34.0, 44.1, 52.1),
    "phi": (44.1, 54.0, 88.1, 92.0),
    "stablelm": (42.1, 52.0, 84.1, 88.1),
    "starcoder": (26.1, 40.0, 52.1, 64.1),
    "gpt_bigcode": (25.1, 40.0, 50.1, 64.1),
    "bert": (28.1, 32.0, 56.1, 64.1),
    "mixtral": (78.5, 92.4, 148.5, 160.4),
    "granite_moe": (78.4, 92.3, 148.4, 160.3),
    "glm": (48.3, 60.3, 88.6, 96.5),
    "t5": (None, 49.0, None, 78.0),
    "bloom": (None, 44.0, None, 72.1),
    "falcon": (None, 32.0, None, 64.0),
    "deepseek": (None, 62.1, None, 97.8),
}


def kept(family, attention, dtype):
    mixture = family in {"mixtral", "granite_moe"}
    grouped = HEADS.get(family, 4 if family in LAYER_NORM else 2)
    fields = case_fields(
        model={
            "family": family,
            "hidden_size": HIDDEN,
            "num_heads": 4,
            "num_kv_heads": grouped,
            "head_dim": 64,
            "intermediate_size": 1024 if family in WIDE else 768,
            "gated_mlp": family not in PLAIN_MLP,
            "norm": "layer" if family in LAYER_NORM else "rms",
            "max_positions": 128 if family in POSITIONS else None,
            "mla": LATENT if family == "deepseek" else None,
            "num_experts": 4 if mixture else 0,
            "experts_per_token": 2 if mixture else 0,
            "expert_intermediate_size": 768 if mixture else None,
        },
        training={
            "sequence_length": 128,
            "micro_batch_size": 2,
            "attention": attention,
            "param_dtype": dtype,
            "compute_dtype": dtype,
            "activation_checkpointing": "none",
            "torch_version": "2.13.0",
        },
    )
    return block_bytes(parse_case(fields).run).kept / HIDDEN


@pytest.mark.parametrize("family", TRACED)
def test_a_family_keeps_what_its_module_saves(family):
    ways = [("sdpa", "bf16"), ("eager", "bf16"), ("sdpa", "fp32"), ("eager", "fp32")]
    for (attention, dtype), traced in zip(ways, TRACED[family], strict=True):
        if traced is not None:
            assert kept(family, attention, dtype) == pytest.approx(traced, rel=0.055)
