"""What is asked: 200 distinct models, and clusters of 3 and 16 kinds."""

import random
from typing import Any, Final

from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import JobSpec, parse_spec

_GIB: Final = 1024**3

# Kind, usable GiB, compute capability, GPUs of each node.
_KINDS: Final = (
    ("Tesla T4", 14.6, "7.5", (4,) * 6),
    ("NVIDIA GeForce RTX 2080 Ti", 10.8, "7.5", (8,) * 3),
    ("NVIDIA A100-SXM4-40GB", 39.4, "8.0", (8, 8)),
    ("NVIDIA A100-SXM4-80GB", 79.2, "8.0", (8, 8)),
    ("NVIDIA H100 80GB HBM3", 79.1, "9.0", (8, 8)),
    ("NVIDIA H200", 139.8, "9.0", (8, 8)),
    ("NVIDIA A10", 22.0, "8.6", (8, 8)),
    ("NVIDIA A10G", 22.0, "8.6", (8, 8)),
    ("NVIDIA L4", 22.2, "8.9", (8, 8)),
    ("NVIDIA L40S", 44.4, "8.9", (8, 8)),
    ("NVIDIA GeForce RTX 3090", 23.7, "8.6", (8, 8)),
    ("NVIDIA GeForce RTX 4090", 23.6, "8.9", (8, 8)),
    ("Tesla V100-SXM2-16GB", 15.7, "7.0", (8, 8)),
    ("Tesla V100-SXM2-32GB", 31.7, "7.0", (8, 8)),
    ("NVIDIA B200", 178.0, "10.0", (8, 8)),
    ("NVIDIA A30", 23.7, "8.0", (8, 8)),
)


def cluster(kinds: int) -> tuple[KindSummary, ...]:
    """Return the first ``kinds`` of 16 kinds of GPU, old and new."""
    return tuple(
        KindSummary(
            kind=name,
            memory_bytes=int(gib * _GIB),
            compute_capability=capability,
            emulated=False,
            relative_speed=1.0,
            node_counts=counts,
        )
        for name, gib, capability, counts in _KINDS[:kinds]
    )


def setups(count: int, seed: int) -> list[TrainingSetup]:
    """Draw jobs as the planner sees them."""
    return [training_setup(spec) for spec in specs(count, seed)]


def specs(count: int, seed: int) -> list[JobSpec]:
    """Draw jobs; no two have the same model, so nothing of an answer can be remembered."""
    draw = random.Random(seed)
    return [
        parse_spec(
            {
                "model": _model(draw, number),
                "data": "node:/text",
                "global_batch_size": draw.choice([8, 16, 32, 64, 128, 192, 256]),
                "sequence_length": draw.choice([512, 1024, 2048, 4096]),
            }
        )
        for number in range(count)
    ]


def _model(draw: random.Random, number: int) -> dict[str, Any]:
    """Draw a model from 10 million to 200 billion parameters; ``number`` makes it unique."""
    heads = draw.choice([8, 12, 16, 20, 24, 32, 40, 48, 64])
    hidden = heads * draw.choice([64, 80, 96, 128])
    layers, vocabulary = draw.randint(6, 80), draw.choice([32_000, 50_257, 128_256]) + number
    if draw.random() < 0.4:
        return {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_layer": layers,
            "n_head": heads,
            "n_positions": 4096,
            "vocab_size": vocabulary,
        }
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": hidden * draw.choice([2, 3, 4]) - draw.choice([0, 64, 128]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([n for n in (1, 2, 4, 8, heads) if heads % n == 0]),
        "vocab_size": vocabulary,
        "tie_word_embeddings": draw.random() < 0.3,
    }
