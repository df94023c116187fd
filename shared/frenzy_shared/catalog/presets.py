"""Model presets as Hugging Face configurations, from each model's published ``config.json``.

The byte models (vocabulary 256 or 512) are Frenzy's own: small enough to train on a CPU.
"""

from collections.abc import Mapping
from typing import Any, Final


def _gpt2(
    width: int, layers: int, heads: int, *, vocabulary: int = 50_257, positions: int = 1024
) -> Mapping[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": width,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": positions,
        "vocab_size": vocabulary,
        "activation_function": "gelu_new",
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
    }


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
    "smollm2-135m": _llama(
        576, 1536, 30, 9, 3, vocabulary=49_152, positions=8192, tied=True, theta=100_000.0
    ),
    "tinyllama-1.1b": _llama(2048, 5632, 22, 32, 4, vocabulary=32_000, positions=2048),
    "llama-2-7b": _llama(4096, 11_008, 32, 32, 32, vocabulary=32_000, positions=4096),
    "llama-2-13b": _llama(5120, 13_824, 40, 40, 40, vocabulary=32_000, positions=4096),
    "llama-3.2-1b": _llama(
        2048, 8192, 16, 32, 8, vocabulary=128_256, positions=131_072, tied=True, theta=500_000.0
    ),
    "llama-3.2-3b": _llama(
        3072, 8192, 28, 24, 8, vocabulary=128_256, positions=131_072, tied=True, theta=500_000.0
    ),
    "llama-3.1-8b": _llama(
        4096, 14_336, 32, 32, 8, vocabulary=128_256, positions=131_072, theta=500_000.0
    ),
    "llama-3.1-70b": _llama(
        8192, 28_672, 80, 64, 8, vocabulary=128_256, positions=131_072, theta=500_000.0
    ),
}
