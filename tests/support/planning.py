"""Set-ups and device kinds for MARP's tests."""

from typing import Any

from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

MIB = 1024**2
GIB = 1024**3


def emulated(name: str, mib: int, count: int = 2, speed: float = 1.0) -> KindSummary:
    return KindSummary(
        kind=f"emulated-{name}",
        memory_bytes=mib * MIB,
        compute_capability="",
        emulated=True,
        relative_speed=speed,
        node_counts=(count,),
    )


def gpu(kind: str, gib: float, *counts: int, capability: str = "8.0") -> KindSummary:
    return KindSummary(
        kind=kind,
        memory_bytes=int(gib * GIB),
        compute_capability=capability,
        emulated=False,
        relative_speed=1.0,
        node_counts=counts or (8,),
    )


def setup(**fields: Any) -> TrainingSetup:
    document = {"model": "gpt2-mini", "data": "node:/text", "global_batch_size": 8, **fields}
    return training_setup(parse_spec(document))
