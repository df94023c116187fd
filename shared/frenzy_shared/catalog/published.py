"""Presets of other architectures than GPT-2 and Llama, from each published ``config.json``."""

from collections.abc import Mapping
from typing import Any, Final

Config = Mapping[str, Any]


def _decoder(
    model_type: str,
    dimensions: tuple[int, int, int, int],
    *,
    vocabulary: int,
    positions: int,
    kv_heads: int | None = None,
    **fields: Any,  # noqa: ANN401 - fields of a config.json
) -> Config:
    """Return a configuration from (hidden size, feed-forward size, layers, heads)."""
    hidden, inner, layers, heads = dimensions
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        **({} if kv_heads is None else {"num_key_value_heads": kv_heads}),
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        **fields,
    }


def _mistral(dimensions: tuple[int, int, int, int], vocabulary: int, **fields: Any) -> Config:  # noqa: ANN401 - see above
    fields = {"positions": 32_768, "sliding_window": None, "rope_theta": 1e6, **fields}
    return _decoder("mistral", dimensions, vocabulary=vocabulary, kv_heads=8, **fields)


def _qwen2(
    dimensions: tuple[int, int, int, int], kv_heads: int, *, vocabulary: int, tied: bool = False
) -> Config:
    return _decoder(
        "qwen2",
        dimensions,
        vocabulary=vocabulary,
        positions=32_768,
        kv_heads=kv_heads,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
    )


def _qwen3(dimensions: tuple[int, int, int, int], *, tied: bool = False) -> Config:
    return _decoder(
        "qwen3",
        dimensions,
        vocabulary=151_936,
        positions=40_960,
        kv_heads=8,
        head_dim=128,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
    )


def _mixtral(dimensions: tuple[int, int, int, int], vocabulary: int, positions: int) -> Config:
    return _decoder(
        "mixtral",
        dimensions,
        vocabulary=vocabulary,
        positions=positions,
        kv_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        rope_theta=1e6,
        rms_norm_eps=1e-5,
    )


def _qwen3_moe(dimensions: tuple[int, int, int, int], expert: int) -> Config:
    return {
        **_qwen3(dimensions),
        "model_type": "qwen3_moe",
        "num_key_value_heads": 4,
        "moe_intermediate_size": expert,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
    }


def _gemma(
    model_type: str, dimensions: tuple[int, int, int, int], kv_heads: int, head_dim: int = 256
) -> Config:
    return _decoder(
        model_type,
        dimensions,
        vocabulary=256_000,
        positions=8192,
        kv_heads=kv_heads,
        head_dim=head_dim,
        pad_token_id=None,
    )


def _phi(dimensions: tuple[int, int, int, int], rotary: float) -> Config:
    return _decoder(
        "phi", dimensions, vocabulary=51_200, positions=2048, partial_rotary_factor=rotary
    )


def _phi3(
    dimensions: tuple[int, int, int, int], kv_heads: int, vocabulary: int, positions: int = 4096
) -> Config:
    return _decoder(
        "phi3",
        dimensions,
        vocabulary=vocabulary,
        positions=positions,
        original_max_position_embeddings=positions,
        kv_heads=kv_heads,
        pad_token_id=None,
    )


def _starcoder2(
    dimensions: tuple[int, int, int, int], kv_heads: int, *, tied: bool = True
) -> Config:
    return _decoder(
        "starcoder2",
        dimensions,
        vocabulary=49_152,
        positions=16_384,
        kv_heads=kv_heads,
        sliding_window=4096,
        tie_word_embeddings=tied,
    )


def _granite3(dimensions: tuple[int, int, int, int], **multipliers: Any) -> Config:  # noqa: ANN401 - see above
    return _decoder(
        "granite",
        dimensions,
        vocabulary=49_155,
        positions=131_072,
        kv_heads=8,
        rope_theta=5e6,
        tie_word_embeddings=True,
        **multipliers,
    )


def _pythia(dimensions: tuple[int, int, int, int], vocabulary: int = 50_304) -> Config:
    return _decoder("gpt_neox", dimensions, vocabulary=vocabulary, positions=2048, rotary_pct=0.25)


def _opt(hidden: int, layers: int, heads: int) -> Config:
    return {
        "model_type": "opt",
        "hidden_size": hidden,
        "word_embed_proj_dim": hidden,
        "ffn_dim": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": 50_272,
        "max_position_embeddings": 2048,
    }


_OLMO: Final[Mapping[str, Any]] = {"vocabulary": 50_304, "positions": 2048}
_OLMO2: Final[Mapping[str, Any]] = {"vocabulary": 100_352, "positions": 4096, "rope_theta": 5e5}

PUBLISHED: Final[Mapping[str, Config]] = {
    "mistral-7b-v0.1": _mistral((4096, 14_336, 32, 32), 32_000, sliding_window=4096),
    "mistral-7b": _mistral((4096, 14_336, 32, 32), 32_768),
    "mistral-nemo-12b": _mistral((5120, 14_336, 40, 32), 131_072, head_dim=128),
    "mistral-small-24b": _mistral((5120, 32_768, 40, 32), 131_072, head_dim=128),
    "qwen2.5-0.5b": _qwen2((896, 4864, 24, 14), 2, vocabulary=151_936, tied=True),
    "qwen2.5-1.5b": _qwen2((1536, 8960, 28, 12), 2, vocabulary=151_936, tied=True),
    "qwen2.5-3b": _qwen2((2048, 11_008, 36, 16), 2, vocabulary=151_936, tied=True),
    "qwen2.5-7b": _qwen2((3584, 18_944, 28, 28), 4, vocabulary=152_064),
    "qwen2.5-14b": _qwen2((5120, 13_824, 48, 40), 8, vocabulary=152_064),
    "qwen2.5-32b": _qwen2((5120, 27_648, 64, 40), 8, vocabulary=152_064),
    "qwen2.5-72b": _qwen2((8192, 29_568, 80, 64), 8, vocabulary=152_064),
    "qwen3-0.6b": _qwen3((1024, 3072, 28, 16), tied=True),
    "qwen3-1.7b": _qwen3((2048, 6144, 28, 16), tied=True),
    "qwen3-4b": _qwen3((2560, 9728, 36, 32), tied=True),
    "qwen3-8b": _qwen3((4096, 12_288, 36, 32)),
    "qwen3-14b": _qwen3((5120, 17_408, 40, 40)),
    "qwen3-32b": _qwen3((5120, 25_600, 64, 64)),
    "qwen3-30b-a3b": _qwen3_moe((2048, 6144, 48, 32), 768),
    "qwen3-235b-a22b": _qwen3_moe((4096, 12_288, 94, 64), 1536),
    "mixtral-8x7b": _mixtral((4096, 14_336, 32, 32), 32_000, 32_768),
    "mixtral-8x22b": _mixtral((6144, 16_384, 56, 48), 32_768, 65_536),
    "olmoe-1b-7b": _decoder(
        "olmoe",
        (2048, 1024, 16, 16),
        vocabulary=50_304,
        positions=4096,
        num_experts=64,
        num_experts_per_tok=8,
        norm_topk_prob=False,
    ),
    "gemma-2b": _gemma("gemma", (2048, 16_384, 18, 8), 1),
    "gemma-7b": _gemma("gemma", (3072, 24_576, 28, 16), 16),
    "gemma-2-2b": _gemma("gemma2", (2304, 9216, 26, 8), 4),
    "gemma-2-9b": _gemma("gemma2", (3584, 14_336, 42, 16), 8),
    "gemma-2-27b": _gemma("gemma2", (4608, 36_864, 46, 32), 16, 128),
    "phi-1.5": _phi((2048, 8192, 24, 32), 0.5),
    "phi-2": _phi((2560, 10_240, 32, 32), 0.4),
    "phi-3-mini": _phi3((3072, 8192, 32, 32), 32, 32_064),
    "phi-3-medium": _phi3((5120, 17_920, 40, 40), 10, 32_064),
    "phi-4": _phi3((5120, 17_920, 40, 40), 10, 100_352, 16_384),
    "stablelm-3b": _decoder(
        "stablelm", (2560, 6912, 32, 32), vocabulary=50_304, positions=4096, kv_heads=32
    ),
    "stablelm-2-1.6b": _decoder(
        "stablelm",
        (2048, 5632, 24, 32),
        vocabulary=100_352,
        positions=4096,
        kv_heads=32,
        use_qkv_bias=True,
    ),
    "starcoder2-3b": _starcoder2((3072, 12_288, 30, 24), 2),
    "starcoder2-7b": _starcoder2((4608, 18_432, 32, 36), 4),
    "starcoder2-15b": _starcoder2((6144, 24_576, 40, 48), 4, tied=False),
    "granite-3.1-2b": _granite3(
        (2048, 8192, 40, 32),
        attention_multiplier=0.015625,
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        residual_multiplier=0.22,
    ),
    "granite-3.1-8b": _granite3(
        (4096, 12_800, 40, 32),
        attention_multiplier=0.0078125,
        embedding_multiplier=12.0,
        logits_scaling=16.0,
        residual_multiplier=0.22,
    ),
    "olmo-1b": _decoder("olmo", (2048, 8192, 16, 16), tie_word_embeddings=True, **_OLMO),
    "olmo-7b": _decoder("olmo", (4096, 11_008, 32, 32), **_OLMO),
    "olmo-2-7b": _decoder("olmo2", (4096, 11_008, 32, 32), **_OLMO2),
    "olmo-2-13b": _decoder("olmo2", (5120, 13_824, 40, 40), **_OLMO2),
    "pythia-70m": _pythia((512, 2048, 6, 8)),
    "pythia-160m": _pythia((768, 3072, 12, 12)),
    "pythia-410m": _pythia((1024, 4096, 24, 16)),
    "pythia-1b": _pythia((2048, 8192, 16, 8)),
    "pythia-1.4b": _pythia((2048, 8192, 24, 16)),
    "pythia-2.8b": _pythia((2560, 10_240, 32, 32)),
    "pythia-6.9b": _pythia((4096, 16_384, 32, 32), 50_432),
    "pythia-12b": _pythia((5120, 20_480, 36, 40), 50_688),
    "gpt-neox-20b": _pythia((6144, 24_576, 44, 64), 50_432),
    "opt-125m": _opt(768, 12, 12),
    "opt-1.3b": _opt(2048, 24, 32),
    "opt-2.7b": _opt(2560, 32, 32),
    "opt-6.7b": _opt(4096, 32, 32),
    "opt-13b": _opt(5120, 40, 40),
    "opt-30b": _opt(7168, 48, 56),
    "opt-66b": _opt(9216, 64, 72),
    "gpt-j-6b": {
        "model_type": "gptj",
        "n_embd": 4096,
        "n_layer": 28,
        "n_head": 16,
        "n_positions": 2048,
        "rotary_dim": 64,
        "vocab_size": 50_400,
    },
}
