"""Configurations drawn by seed: small enough for a CPU, varied in everything MARP models."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from frenzy_shared.domain.cluster import KindSummary

KIND = KindSummary(
    kind="emulated-bench",
    memory_bytes=8 * 1024**3,
    compute_capability="",
    emulated=True,
    relative_speed=1.0,
    node_counts=(4,),
)
Model = Callable[[random.Random, int], dict[str, Any]]
STEPS = 2  # the second has Adam's moments from the start
_ADAPTED: Final = 1 / 3
_PARTICULAR: Final[dict[str, dict[str, Any]]] = {
    "gemma": {"head_dim": 32},
    "gemma2": {"head_dim": 32, "sliding_window": 64},
    "mistral": {"sliding_window": 64},
    "mixtral": {"num_local_experts": 4},
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 3},
    "phi3": {"pad_token_id": None},
    "qwen3": {"head_dim": 32},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
}
_OTHERS: Final = (
    "gemma",
    "gemma2",
    "gpt_neox",
    "gptj",
    "granite",
    "mistral",
    "mixtral",
    "olmo",
    "olmo2",
    "olmoe",
    "opt",
    "phi",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "stablelm",
    "starcoder2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One run: a job specification with everything pinned."""

    name: str
    spec: dict[str, Any]


def draw(seed: int, count: int = 36) -> tuple[Configuration, ...]:
    """Draw ``count`` configurations.

    Every block of twelve has all stages on one, two and four ranks; every architecture comes
    once before any comes twice; a third trains adapters.
    """
    chance = random.Random(seed)
    cells = [(stage, ranks) for stage in range(4) for ranks in (1, 2, 4)]
    models = [_gpt2, _llama, *(partial(_other, kind) for kind in _OTHERS)]
    chosen: list[tuple[int, int]] = []
    made: list[Model] = []
    while len(chosen) < count:
        chance.shuffle(cells)
        chosen.extend(cells)
    while len(made) < count:
        chance.shuffle(models)
        made.extend(models)
    return tuple(
        _one(chance, model, stage, ranks)
        for model, (stage, ranks) in zip(made[:count], chosen[:count], strict=True)
    )


def _one(chance: random.Random, make: "Model", stage: int, ranks: int) -> Configuration:
    length = chance.choice([32, 64, 128, 256])
    micro_batch = chance.choice([1, 2, 3, 4])
    accumulation = chance.randint(1, 4)
    precision = chance.choice(["bf16", "fp32"])
    checkpointing = chance.choice(["none", "full"])
    attention = chance.choice(["sdpa", "sdpa", "eager"])
    model = make(chance, length)
    lora = {"rank": chance.choice([4, 16])} if chance.random() < _ADAPTED else None
    adapted = f" lora-{lora['rank']}" if lora else ""
    return Configuration(
        name=(
            f"{model['model_type']} z{stage} x{ranks} {precision} acc{accumulation} "
            f"m{micro_batch} s{length} {attention} ckpt-{checkpointing}{adapted}"
        ),
        spec={
            "model": model,
            "sequence_length": length,
            "global_batch_size": micro_batch * accumulation * ranks,
            "max_steps": STEPS,
            "precision": precision,
            "attention": attention,
            "gradient_checkpointing": checkpointing,
            **({"method": "lora", "lora": lora} if lora else {}),
            "resources": {
                "gpus": ranks,
                "zero_stage": stage,
                "micro_batch_size": micro_batch,
            },
        },
    )


def _width(chance: random.Random) -> tuple[int, int]:
    heads = chance.choice([2, 4, 8])
    return heads, heads * chance.choice([16, 32])


def _gpt2(chance: random.Random, length: int) -> dict[str, Any]:
    heads, width = _width(chance)
    return {
        "model_type": "gpt2",
        "n_embd": width,
        "n_layer": chance.randint(1, 6),
        "n_head": heads,
        "n_inner": width * chance.choice([2, 4]),
        "n_positions": length * chance.choice([1, 2]),
        "vocab_size": chance.choice([256, 512, 2048]),
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama(chance: random.Random, length: int) -> dict[str, Any]:
    heads, width = _width(chance)
    return {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": width * chance.choice([2, 3, 4]),
        "num_hidden_layers": chance.randint(1, 6),
        "num_attention_heads": heads,
        "num_key_value_heads": heads // chance.choice([1, 2]),
        "max_position_embeddings": length,
        "vocab_size": chance.choice([256, 512, 2048]),
        "tie_word_embeddings": chance.choice([True, False]),
    }


def _other(kind: str, chance: random.Random, length: int) -> dict[str, Any]:
    """Draw a model of another architecture; what is particular to it stays as it is by default."""
    heads, width = _width(chance)
    if kind == "gptj":
        return {
            **_gpt2(chance, length),
            "model_type": "gptj",
            "rotary_dim": 8,
        }
    inner = width * chance.choice([2, 3, 4])
    grouped = heads // chance.choice([1, 2])
    return {
        "model_type": kind,
        "hidden_size": width,
        "ffn_dim" if kind == "opt" else "intermediate_size": inner,
        "num_hidden_layers": chance.randint(1, 6),
        "num_attention_heads": heads,
        **({} if kind in {"opt", "gpt_neox"} else {"num_key_value_heads": grouped}),
        "max_position_embeddings": length,
        "vocab_size": chance.choice([256, 512, 2048]),
        **_PARTICULAR.get(kind, {}),
    }
