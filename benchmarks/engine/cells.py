"""The cells: every family, ZeRO stage and kind of checkpointing, the rest drawn.

Models have the widths and vocabularies of real ones, since tensors without contents cost nothing,
and few layers, since operators do.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

STAGES: Final = (0, 1, 2, 3)
CHECKPOINTING: Final = ("none", "full")
_DRAWS: Final = 2  # of each of the above
_OFFLOADS: Final = ((1, "optimizer"), (2, "optimizer"), (3, "optimizer"), (3, "parameters")) * 2
_RANKS: Final = (1, 2, 3, 4, 16, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One job specification with everything pinned."""

    name: str
    spec: dict[str, Any]


def draw(seed: int) -> tuple[Cell, ...]:
    """Return the cells of a seed, shuffled, so that a part of them is a fair sample."""
    chance = random.Random(seed)
    choices = product(_FAMILIES, STAGES, CHECKPOINTING, range(_DRAWS))
    cells = {cell.name: cell for cell in (_cell(chance, *choice[:3]) for choice in choices)}
    names = list(cells)
    chance.shuffle(names)
    return tuple(cells[name] for name in names) + _offloaded(random.Random(seed))


def _offloaded(chance: random.Random) -> tuple[Cell, ...]:
    """Return cells with states in the node's RAM: every stage that can, several families."""
    choices = product(("gpt2", "llama", "llama-tied", "qwen2-lora", "gemma2"), _OFFLOADS)
    cells = [
        _cell(chance, family, stage, chance.choice(CHECKPOINTING), offload)
        for family, (stage, offload) in choices
    ]
    return tuple({cell.name: cell for cell in cells}.values())


def _cell(
    chance: random.Random, family: str, stage: int, saved: str, offload: str = "none"
) -> Cell:
    ranks = chance.choice(_RANKS)
    length = chance.choice([128, 512, 1024, 2048])
    micro_batch = chance.choice([1, 1, 2, 3, 8])
    accumulation = chance.choice([1, 2, 3])
    precision = chance.choice(["bf16", "fp32"])
    if family in _MIXTURES:
        precision = "bf16"  # torch's fake grouped product knows no other
    attention = chance.choice(["sdpa", "sdpa", "eager"])
    return Cell(
        name=(
            f"{family} z{stage} x{ranks} ckpt-{saved} {precision} {attention} "
            f"acc{accumulation} m{micro_batch} s{length}"
            f"{'' if offload == 'none' else f' offload-{offload}'}"
        ),
        spec={
            "model": _FAMILIES[family](chance),
            "data": "node:/any",
            "sequence_length": length,
            "global_batch_size": micro_batch * accumulation * ranks,
            "max_steps": 2,
            "precision": precision,
            "attention": attention,
            "gradient_checkpointing": saved,
            "resources": {
                "gpus": ranks,
                "zero_stage": stage,
                "micro_batch_size": micro_batch,
                **({} if offload == "none" else {"offload": offload}),
            },
            **_METHODS.get(family, {}),
        },
    )


def _gpt(chance: random.Random, model_type: str, **fields: Any) -> dict[str, Any]:
    width, heads = chance.choice([(768, 12), (1024, 16), (1600, 25)])
    return {
        "model_type": model_type,
        "n_embd": width,
        "n_head": heads,
        "n_layer": chance.randint(2, 4),
        "n_positions": 2048,
        "vocab_size": chance.choice([50257, 8192]),
        **fields,
    }


def _wide(chance: random.Random, model_type: str, **fields: Any) -> dict[str, Any]:
    width, heads, keys, inner = chance.choice(
        [(512, 8, 8, 1376), (2048, 32, 4, 5632), (4096, 32, 32, 11008), (4096, 32, 8, 14336)]
    )
    return {
        "model_type": model_type,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "intermediate_size": inner,
        "num_hidden_layers": chance.randint(2, 4),
        "max_position_embeddings": 4096,
        "vocab_size": chance.choice([32000, 128256]),
        **fields,
    }


def _mixture(chance: random.Random, model_type: str, **fields: Any) -> dict[str, Any]:
    """Return a model with narrow experts: a trace costs what all of them take, in tensors."""
    experts, chosen = chance.choice([(4, 1), (8, 2), (64, 6)])
    inner = "moe_intermediate_size" if model_type == "qwen3_moe" else "intermediate_size"
    return {
        **_wide(chance, model_type),
        inner: chance.choice([512, 1536]),
        "num_experts": experts,
        "num_experts_per_tok": chosen,
        **fields,
    }


_Maker = Callable[[random.Random], dict[str, Any]]
_FAMILIES: Final[dict[str, _Maker]] = {
    "gpt2": partial(_gpt, model_type="gpt2"),
    "gptj": partial(_gpt, model_type="gptj", rotary_dim=16),
    "llama": partial(_wide, model_type="llama", tie_word_embeddings=False),
    "llama-tied": partial(_wide, model_type="llama", tie_word_embeddings=True),
    "mistral": partial(_wide, model_type="mistral"),
    "qwen2": partial(_wide, model_type="qwen2"),
    "qwen3": partial(_wide, model_type="qwen3", head_dim=128),
    "gemma": partial(_wide, model_type="gemma", head_dim=128),
    "gemma2": partial(_wide, model_type="gemma2", head_dim=128),
    "phi": partial(_wide, model_type="phi"),
    "phi3": partial(_wide, model_type="phi3", pad_token_id=None),
    "gpt_neox": partial(_wide, model_type="gpt_neox"),
    "stablelm": partial(_wide, model_type="stablelm"),
    "starcoder2": partial(_wide, model_type="starcoder2"),
    "olmo2": partial(_wide, model_type="olmo2"),
    "granite": partial(_wide, model_type="granite"),
    "llama-lora": partial(_wide, model_type="llama"),
    "qwen2-lora": partial(_wide, model_type="qwen2"),
    "llama-chunked": partial(_wide, model_type="llama"),
    "gpt2-chunked": partial(_gpt, model_type="gpt2"),
    "mixtral": partial(_mixture, model_type="mixtral"),
    "olmoe": partial(_mixture, model_type="olmoe"),
    "qwen3_moe": partial(_mixture, model_type="qwen3_moe", norm_topk_prob=True),
}
_MIXTURES: Final = ("mixtral", "olmoe", "qwen3_moe")
_METHODS: Final[dict[str, dict[str, Any]]] = {
    "llama-lora": {"method": "lora", "lora": {"rank": 16}},
    "qwen2-lora": {"method": "lora", "lora": {"rank": 64}},
    "llama-chunked": {"loss": "chunked"},
    "gpt2-chunked": {"loss": "chunked"},
}
