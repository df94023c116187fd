"""Published utilisation of training runs, against what MARP's best plan is predicted to reach.

MosaicML's llm-foundry, scripts/train/benchmarking/README.md: MPT models on 8 GPUs with FSDP, bf16,
2048 tokens, fused attention, and fused norms and loss. MFU there is (6 P + 12 L h s) times tokens
per second over the peak. Frenzy's trainer runs transformers' own code, whose other kernels are not
fused, so a prediction is expected below the published figure, and in the same order.
"""

from dataclasses import dataclass
from typing import Any, Final

from frenzy_marp.core.planner import plan_job
from frenzy_shared.catalog.gpus import find_gpu
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

_TOKENS: Final = 2048
_GPUS: Final = 8
_SHAPES: Final = {  # hidden size, layers, heads, by the published name
    "125M": (768, 12, 12),
    "350M": (1024, 24, 16),
    "760M": (1536, 24, 12),
    "1.3B": (2048, 24, 16),
    "2.7B": (2560, 32, 20),
    "6.7B": (4096, 32, 32),
    "13B": (5120, 40, 40),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One published run."""

    gpu: str
    model: str
    mfu: float


POINTS: Final = (
    *(
        Point("A100 SXM4 80GB", model, mfu)
        for model, mfu in (
            ("125M", 0.45),
            ("350M", 0.52),
            ("760M", 0.57),
            ("1.3B", 0.60),
            ("2.7B", 0.62),
            ("6.7B", 0.64),
            ("13B", 0.60),
        )
    ),
    *(
        Point("H100 SXM5 80GB", model, mfu)
        for model, mfu in (("1.3B", 0.42), ("2.7B", 0.44), ("6.7B", 0.46), ("13B", 0.40))
    ),
)


def compared() -> list[dict[str, Any]]:
    """Return published and predicted utilisation of every point."""
    return [
        {
            "gpu": point.gpu,
            "model": point.model,
            "published_mfu": point.mfu,
            "predicted_mfu": round(_predicted(point), 3),
        }
        for point in POINTS
    ]


def _predicted(point: Point) -> float:
    hidden, layers, heads = _SHAPES[point.model]
    gpu = find_gpu(point.gpu)
    if gpu is None:
        raise AssertionError(f"the catalogue lost {point.gpu}")
    kind = KindSummary(
        kind=gpu.name,
        memory_bytes=gpu.memory_bytes,
        compute_capability=gpu.compute_capability,
        emulated=False,
        relative_speed=1.0,
        node_counts=(_GPUS,),
    )
    setup = training_setup(
        parse_spec(
            {
                "model": {
                    "model_type": "gpt2",
                    "n_embd": hidden,
                    "n_layer": layers,
                    "n_head": heads,
                    "n_positions": _TOKENS,
                    "vocab_size": 50_368,
                },
                "data": "node:/any",
                "sequence_length": _TOKENS,
                "global_batch_size": 1024,
                "resources": {"gpus": _GPUS, "zero_stage": 3},
            }
        )
    )
    best = plan_job(setup, [kind]).plans[0]
    per_token = 6 * setup.model.num_parameters + 12 * layers * hidden * _TOKENS
    return per_token * best.speed.tokens_per_s / (_GPUS * gpu.tensor_flops)
