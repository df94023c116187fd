"""Configurations drawn by seed: small enough for a CPU, varied in everything MARP models."""

import random
from dataclasses import dataclass
from typing import Any

from frenzy_shared.domain.cluster import KindSummary

KIND = KindSummary(
    kind="emulated-bench",
    memory_bytes=8 * 1024**3,
    compute_capability="",
    emulated=True,
    relative_speed=1.0,
    node_counts=(2,),
)
STEPS = 2  # the second has Adam's moments from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One run: a job specification with everything pinned."""

    name: str
    spec: dict[str, Any]


def draw(seed: int, count: int = 24) -> tuple[Configuration, ...]:
    """Draw ``count`` configurations; every block of eight has all stages on one and two ranks."""
    chance = random.Random(seed)
    cells = [(stage, ranks) for stage in range(4) for ranks in (1, 2)]
    chosen: list[tuple[int, int]] = []
    while len(chosen) < count:
        chance.shuffle(cells)
        chosen.extend(cells)
    return tuple(_one(chance, stage, ranks) for stage, ranks in chosen[:count])


def _one(chance: random.Random, stage: int, ranks: int) -> Configuration:
    length = chance.choice([32, 64, 128, 256])
    micro_batch = chance.choice([1, 2, 3, 4])
    accumulation = chance.randint(1, 4)
    precision = chance.choice(["bf16", "fp32"])
    checkpointing = chance.choice(["none", "full"])
    attention = chance.choice(["sdpa", "sdpa", "eager"])
    model = chance.choice([_gpt2, _llama])(chance, length)
    return Configuration(
        name=(
            f"{model['model_type']} z{stage} x{ranks} {precision} acc{accumulation} "
            f"m{micro_batch} s{length} {attention} ckpt-{checkpointing}"
        ),
        spec={
            "model": model,
            "sequence_length": length,
            "global_batch_size": micro_batch * accumulation * ranks,
            "max_steps": STEPS,
            "precision": precision,
            "attention": attention,
            "gradient_checkpointing": checkpointing,
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
