"""Low-rank adapters: what is trained instead of a model's weights (LoRA, arXiv 2106.09685)."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a matrix of a block is for; architectures give it names of their own."""

    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    FUSED = "query, key and value"
    OUTPUT = "attention output"
    GATE = "gate"
    UP = "up"
    GATE_AND_UP = "gate and up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Two matrices of ``rank`` beside every matrix of ``roles``: y = W x + alpha / rank B A x.

    ``dropout`` is the share of the inputs of A that is set to zero. ``modules`` are the names
    of the adapted matrices in the model's code.
    """

    rank: int
    alpha: float
    dropout: float
    roles: tuple[Role, ...]
    modules: tuple[str, ...]
