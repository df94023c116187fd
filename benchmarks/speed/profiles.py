"""Sailor's layer profiles (SOSP'25, github.com/eth-easl/sailor, MIT) as jobs on kinds of GPU.

The profiles do not say everything. What had to be concluded, and from what:
precision is fp32 (parameters take 4 bytes in llm_info.json) and sequences are as long as the
activations say; TF32 was allowed except where a card's rate stays just below its fp32 peak in
every row, which holds for two models on the A100 40GB; "RTX-2080" moves bytes like an RTX 2080 Ti.
GPT-Neo on the GH200 is left out: its rows are those of OPT-350M, digit by digit.
"""

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from frenzy_shared.catalog.gpus import GpuModel, find_gpu
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.errors import FrenzyError
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

CARDS: Final = {
    "A100-40": "A100 SXM4 40GB",
    "A100-80": "A100 SXM4 80GB",
    "GH-96": "GH200 96GB",
    "V100-16": "V100 SXM2 16GB",
    "Titan-RTX": "TITAN RTX",
    "RTX-2080": "RTX 2080 Ti",
    "RTX-3090": "RTX 3090",
}
_BRIDGED: Final = frozenset({"Titan-RTX", "RTX-2080", "RTX-3090"})  # these had no bridge
_WITHOUT_TF32: Final = frozenset({("OPT-30", "A100-40"), ("LLAMA-3-8", "A100-40")})
_COPIED: Final = ("GPT-Neo-2.7", "GH-96")


def _decoder(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_layer": layers,
        "n_embd": hidden,
        "n_head": heads,
        "n_positions": 2048,
        "vocab_size": 50_272,
    }


_MODELS: Final[dict[str, tuple[dict[str, Any] | str, int]]] = {  # configuration, tokens
    "OPT-350": (_decoder(24, 1024, 16), 2048),
    "GPT-Neo-2.7": (_decoder(32, 2560, 20), 2048),
    "OPT-30": (_decoder(48, 7168, 56), 2048),
    "LLAMA-3-8": ("llama-3-8b", 8192),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured micro-batch: forward and backward of all layers, and an optimizer's update."""

    model: str
    card: str
    tensor: int
    micro_batch: int
    tf32: bool
    compute_s: float
    update_s: float  # 0: not measured

    @property
    def setup(self) -> TrainingSetup:
        """Return the micro-batch as a job of one step."""
        model, tokens = _MODELS[self.model]
        return training_setup(
            parse_spec(
                {
                    "model": model,
                    "data": "node:/any",
                    "sequence_length": tokens,
                    "global_batch_size": self.micro_batch,
                    "attention": "eager",
                    "precision": "fp32",
                    "max_steps": 1,
                }
            )
        )

    @property
    def gpu(self) -> GpuModel:
        """Return the card, without a bridge where the profiled machines had none."""
        found = find_gpu(CARDS[self.card])
        if found is None:
            raise AssertionError(f"the catalogue lost {CARDS[self.card]}")
        if self.card in _BRIDGED:
            return replace(found, link=found.host_link)
        return found

    @property
    def kind(self) -> KindSummary:
        """Return a node of eight such cards."""
        return KindSummary(
            kind=CARDS[self.card],
            memory_bytes=self.gpu.memory_bytes,
            compute_capability=self.gpu.compute_capability,
            emulated=False,
            relative_speed=1.0,
            node_counts=(8,),
        )


def read(path: Path) -> list[Row]:
    """Read ``step_times.csv``.

    Raises:
        FrenzyError: it cannot be read, or lacks a column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return [_row(fields) for fields in csv.DictReader(lines) if _counts(fields)]
    except (OSError, KeyError, ValueError) as error:
        raise FrenzyError(f"{path} is not Sailor's step_times.csv: {error!r}") from error


def _counts(fields: dict[str, str]) -> bool:
    return (fields["model"], fields["gpu"]) != _COPIED


def _row(fields: dict[str, str]) -> Row:
    model, card = fields["model"], fields["gpu"]
    if model not in _MODELS or card not in CARDS:
        raise ValueError(f"unknown profile {model} on {card}")
    return Row(
        model=model,
        card=card,
        tensor=int(fields["tp"]),
        micro_batch=int(fields["microbatch"]),
        tf32=(model, card) not in _WITHOUT_TF32,
        compute_s=float(fields["fwd_s"]) + float(fields["bwd_s"]),
        update_s=float(fields["update_s"]),
    )
