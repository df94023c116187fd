"""One tiny configuration of every architecture whose structure is known, and of its variants."""

from typing import Any

_LAYERS = {"num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 512}
_WIDE = {"hidden_size": 96, "intermediate_size": 224, "max_position_embeddings": 128, **_LAYERS}
_GROUPED = {**_WIDE, "num_key_value_heads": 2}
_CHOSEN = {"num_experts_per_tok": 3}
_GPT = {"n_embd": 96, "n_layer": 3, "n_head": 4, "n_positions": 128, "vocab_size": 512}

FAMILIES: dict[str, dict[str, Any]] = {
    "gemma": {"model_type": "gemma", **_GROUPED, "head_dim": 32},
    "gemma2": {"model_type": "gemma2", **_GROUPED, "head_dim": 32, "sliding_window": 16},
    "gemma2 uncapped": {
        "model_type": "gemma2",
        **_GROUPED,
        "attn_logit_softcapping": None,
        "head_dim": 32,
    },
    "gpt2": {"model_type": "gpt2", **_GPT},
    "gptj": {"model_type": "gptj", **_GPT, "rotary_dim": 16},
    "gpt_neox": {"model_type": "gpt_neox", **_WIDE},
    "gpt_neox sequential": {"model_type": "gpt_neox", **_WIDE, "use_parallel_residual": False},
    "granite": {"model_type": "granite", **_GROUPED, "residual_multiplier": 0.2},
    "llama": {"model_type": "llama", **_GROUPED},
    "llama biased": {"model_type": "llama", **_WIDE, "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", **_GROUPED},
    "mistral in a window": {"model_type": "mistral", **_GROUPED, "sliding_window": 16},
    "mixtral": {"model_type": "mixtral", **_GROUPED, "num_local_experts": 4},
    "mixtral of many": {"model_type": "mixtral", **_GROUPED, **_CHOSEN, "num_local_experts": 16},
    "olmo": {"model_type": "olmo", **_GROUPED},
    "olmo2": {"model_type": "olmo2", **_GROUPED},
    "olmo3": {"model_type": "olmo3", **_GROUPED, "sliding_window": 64},
    "olmoe": {"model_type": "olmoe", **_GROUPED, **_CHOSEN, "num_experts": 8},
    "opt": {"model_type": "opt", **_WIDE, "ffn_dim": 224, "word_embed_proj_dim": 96},
    "phi": {"model_type": "phi", **_WIDE},
    "phi normed": {"model_type": "phi", **_WIDE, "qk_layernorm": True},
    "phi3": {"model_type": "phi3", **_GROUPED, "pad_token_id": None},
    "qwen2": {"model_type": "qwen2", **_GROUPED},
    "qwen3": {"model_type": "qwen3", **_GROUPED, "head_dim": 32, "tie_word_embeddings": True},
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **_GROUPED,
        **_CHOSEN,
        "num_experts": 8,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    },
    "stablelm": {"model_type": "stablelm", **_GROUPED},
    "stablelm parallel": {"model_type": "stablelm", **_GROUPED, "use_parallel_residual": True},
    "starcoder2": {"model_type": "starcoder2", **_GROUPED},
}
