"""Model presets as Hugging Face configurations, from each model's published ``config.json``.

The byte models (vocabulary 256 or 512) are Frenzy's own: small enough to train on
a CPU.
"""

from collections.abc import Mapping
from typing import Any, Final

from frenzy_shared.catalog.published import PUBLISHED


def _gpt2(
    width: int,
    layers: int,
    heads: int,
    *,
    vocabulary: int = 50_257,
    positions: int = 1024,
    activation: str = "gelu_new",
) -> Mapping[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": width,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": positions,
        "vocab_size": vocabulary,
        "activation_function": activation,
        "tie_word_embeddings": True,
        **({} if vocabulary > 50_256 else {"bos_token_id": None, "eos_token_id": None}),
    }


def _llama(
    width: int,
    mlp: int,
    layers: int,
    heads: int,
    kv_heads: int,
    *,
    vocabulary: int,
    positions: int,
    tied: bool = False,
    theta: float = 10_000.0,
    biased: bool = False,
) -> Mapping[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": positions,
        "vocab_size": vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": theta,
        "tie_word_embeddings": tied,
        **({"attention_bias": True, "mlp_bias": True} if biased else {}),
    }


def _cerebras(width: int, layers: int, heads: int) -> Mapping[str, Any]:
    return _gpt2(width, layers, heads, positions=2048, activation="gelu")


def _llama_1(width: int, mlp: int, layers: int, heads: int) -> Mapping[str, Any]:
    return _llama(width, mlp, layers, heads, heads, vocabulary=32_000, positions=2048)


def _llama_2(
    width: int, mlp: int, layers: int, heads: int, kv_heads: int, *, vocabulary: int = 32_000
) -> Mapping[str, Any]:
    return _llama(width, mlp, layers, heads, kv_heads, vocabulary=vocabulary, positions=4096)


def _llama_3(
    width: int, mlp: int, layers: int, heads: int, *, positions: int = 131_072, tied: bool = False
) -> Mapping[str, Any]:
    return _llama(
        width,
        mlp,
        layers,
        heads,
        8,
        vocabulary=128_256,
        positions=positions,
        tied=tied,
        theta=500_000.0,
    )


def _code_llama(
    width: int, mlp: int, layers: int, heads: int, kv_heads: int, *, vocabulary: int = 32_016
) -> Mapping[str, Any]:
    return _llama(
        width, mlp, layers, heads, kv_heads, vocabulary=vocabulary, positions=16_384, theta=1e6
    )


def _smollm(
    width: int, mlp: int, layers: int, heads: int, kv_heads: int, *, second: bool = False
) -> Mapping[str, Any]:
    return _llama(
        width,
        mlp,
        layers,
        heads,
        kv_heads,
        vocabulary=49_152,
        positions=8192 if second else 2048,
        tied=True,
        theta=100_000.0 if second else 10_000.0,
    )


def _yi(width: int, mlp: int, layers: int, heads: int, kv_heads: int) -> Mapping[str, Any]:
    return _llama(width, mlp, layers, heads, kv_heads, vocabulary=64_000, positions=4096, theta=5e6)


def _deepseek(width: int, mlp: int, layers: int, heads: int, kv_heads: int) -> Mapping[str, Any]:
    return _llama(width, mlp, layers, heads, kv_heads, vocabulary=102_400, positions=4096)


def _deepseek_coder(
    width: int, mlp: int, layers: int, heads: int, kv_heads: int
) -> Mapping[str, Any]:
    return _llama(
        width, mlp, layers, heads, kv_heads, vocabulary=32_256, positions=16_384, theta=100_000.0
    )


def _granite_code(
    width: int, mlp: int, layers: int, kv_heads: int, *, positions: int, theta: float
) -> Mapping[str, Any]:
    return _llama(
        width,
        mlp,
        layers,
        32,
        kv_heads,
        vocabulary=49_152,
        positions=positions,
        tied=True,
        theta=theta,
        biased=True,
    )


PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt2-tiny": _gpt2(128, 4, 4, vocabulary=256, positions=256),  # 0.9 M parameters
    "gpt2-mini": _gpt2(256, 6, 8, vocabulary=512, positions=512),  # 5.0 M
    "llama-tiny": _llama(96, 256, 4, 4, 2, vocabulary=256, positions=512),  # 0.5 M
    "llama-small": _llama(256, 688, 6, 8, 4, vocabulary=512, positions=1024),  # 4.6 M
    "llama-medium": _llama(384, 1024, 10, 8, 4, vocabulary=512, positions=1024),  # 17 M
    "distilgpt2": _gpt2(768, 6, 12),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "cerebras-gpt-111m": _cerebras(768, 10, 12),
    "cerebras-gpt-256m": _cerebras(1088, 14, 17),
    "cerebras-gpt-590m": _cerebras(1536, 18, 12),
    "cerebras-gpt-1.3b": _cerebras(2048, 24, 16),
    "cerebras-gpt-2.7b": _cerebras(2560, 32, 32),
    "cerebras-gpt-6.7b": _cerebras(4096, 32, 32),
    "cerebras-gpt-13b": _cerebras(5120, 40, 40),
    "llama-68m": _llama_1(768, 3072, 2, 12),
    "llama-160m": _llama_1(768, 3072, 12, 12),
    "llama-7b": _llama_1(4096, 11_008, 32, 32),
    "llama-13b": _llama_1(5120, 13_824, 40, 40),
    "llama-30b": _llama_1(6656, 17_920, 60, 52),
    "llama-65b": _llama_1(8192, 22_016, 80, 64),
    "open-llama-3b": _llama_1(3200, 8640, 26, 32),
    "sheared-llama-1.3b": _llama_2(2048, 5504, 24, 16, 16),
    "sheared-llama-2.7b": _llama_2(2560, 6912, 32, 20, 20),
    "tinyllama-1.1b": _llama(2048, 5632, 22, 32, 4, vocabulary=32_000, positions=2048),
    "smollm-135m": _smollm(576, 1536, 30, 9, 3),
    "smollm-360m": _smollm(960, 2560, 32, 15, 5),
    "smollm-1.7b": _smollm(2048, 8192, 24, 32, 32),
    "smollm2-135m": _smollm(576, 1536, 30, 9, 3, second=True),
    "smollm2-360m": _smollm(960, 2560, 32, 15, 5, second=True),
    "smollm2-1.7b": _smollm(2048, 8192, 24, 32, 32, second=True),
    "llama-2-7b": _llama_2(4096, 11_008, 32, 32, 32),
    "llama-2-13b": _llama_2(5120, 13_824, 40, 40, 40),
    "llama-2-70b": _llama_2(8192, 28_672, 80, 64, 8),
    "code-llama-7b": _code_llama(4096, 11_008, 32, 32, 32),
    "code-llama-13b": _code_llama(5120, 13_824, 40, 40, 40),
    "code-llama-34b": _code_llama(8192, 22_016, 48, 64, 8, vocabulary=32_000),
    "solar-10.7b": _llama_2(4096, 14_336, 48, 32, 8),
    "yi-6b": _yi(4096, 11_008, 32, 32, 4),
    "yi-9b": _yi(4096, 11_008, 48, 32, 4),
    "yi-34b": _yi(7168, 20_480, 60, 56, 8),
    "deepseek-llm-7b": _deepseek(4096, 11_008, 30, 32, 32),
    "deepseek-llm-67b": _deepseek(8192, 22_016, 95, 64, 8),
    "deepseek-coder-1.3b": _deepseek_coder(2048, 5504, 24, 16, 16),
    "deepseek-coder-6.7b": _deepseek_coder(4096, 11_008, 32, 32, 32),
    "deepseek-coder-33b": _deepseek_coder(7168, 19_200, 62, 56, 8),
    "granite-3b-code": _granite_code(2560, 10_240, 32, 32, positions=2048, theta=10_000.0),
    "granite-8b-code": _granite_code(4096, 14_336, 36, 8, positions=4096, theta=10_000_000.0),
    "llama-3-8b": _llama_3(4096, 14_336, 32, 32, positions=8192),
    "llama-3-70b": _llama_3(8192, 28_672, 80, 64, positions=8192),
    "llama-3.1-8b": _llama_3(4096, 14_336, 32, 32),
    "llama-3.1-70b": _llama_3(8192, 28_672, 80, 64),
    "llama-3.1-405b": _llama_3(16_384, 53_248, 126, 128),
    "llama-3.2-1b": _llama_3(2048, 8192, 16, 32, tied=True),
    "llama-3.2-3b": _llama_3(3072, 8192, 28, 24, tied=True),
    **PUBLISHED,
}
