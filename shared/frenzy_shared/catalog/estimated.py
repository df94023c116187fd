"""Presets of models whose memory is predicted, but which are not planned or trained here.

Mixtures with dense layers or latent attention, and encoders, from each published ``config.json``.
"""

from collections.abc import Mapping
from typing import Any, Final

Config = Mapping[str, Any]


def _deepseek(
    model_type: str,
    dimensions: tuple[int, int, int, int],
    *,
    experts: tuple[int, int, int, int],
    query_rank: int | None,
    dense: int,
    vocabulary: int,
) -> Config:
    """Return a configuration; ``experts`` are (routed, shared, per token, width of one)."""
    hidden, inner, layers, heads = dimensions
    routed, shared, chosen, width = experts
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "n_routed_experts": routed,
        "n_shared_experts": shared,
        "num_experts_per_tok": chosen,
        "moe_intermediate_size": width,
        "first_k_dense_replace": dense,
        "q_lora_rank": query_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": vocabulary,
        "max_position_embeddings": 163_840,
        "tie_word_embeddings": False,
    }


def _t5(hidden: int, inner: int, layers: int, heads: int, head_dim: int) -> Config:
    return {
        "model_type": "t5",
        "d_model": hidden,
        "d_ff": inner,
        "num_layers": layers,
        "num_decoder_layers": layers,
        "num_heads": heads,
        "d_kv": head_dim,
        "vocab_size": 32_128,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
    }


def _bert(hidden: int, layers: int, heads: int) -> Config:
    return {
        "model_type": "bert",
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 512,
        "vocab_size": 30_522,
    }


ESTIMATED: Final[Mapping[str, Config]] = {
    "deepseek-v2-lite": _deepseek(
        "deepseek_v2",
        (2048, 10_944, 27, 16),
        experts=(64, 2, 6, 1408),
        query_rank=None,
        dense=1,
        vocabulary=102_400,
    ),
    "deepseek-v2": _deepseek(
        "deepseek_v2",
        (5120, 12_288, 60, 128),
        experts=(160, 2, 6, 1536),
        query_rank=1536,
        dense=1,
        vocabulary=102_400,
    ),
    "deepseek-v3": _deepseek(
        "deepseek_v3",
        (7168, 18_432, 61, 128),
        experts=(256, 1, 8, 2048),
        query_rank=1536,
        dense=3,
        vocabulary=129_280,
    ),
    "qwen1.5-moe-a2.7b": {
        "model_type": "qwen2_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "vocab_size": 151_936,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    },
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1024, 24, 16),
    "t5-small": _t5(512, 2048, 6, 8, 64),
    "t5-base": _t5(768, 3072, 12, 12, 64),
    "t5-large": _t5(1024, 4096, 24, 16, 64),
    "t5-3b": _t5(1024, 16_384, 24, 32, 128),
    "t5-11b": _t5(1024, 65_536, 24, 128, 128),
}
ESTIMATED_TYPES: Final = frozenset(str(config["model_type"]) for config in ESTIMATED.values())
