"""What all layers share beside the weights: the batch, masks, and tables of rotations."""

from typing import Final

import numpy as np

from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.sizes import Bytes, rounded_up
from frenzy_marp.core.memory.tape import rounded
from frenzy_shared.domain.model import Attention

_INT64: Final = 8
_SCALARS: Final = 20 * 512  # losses, norms, scales: a block each


def constants(shape: Shape, sequences: Bytes) -> Bytes:
    """Return the bytes of tokens, rotary tables and scalars; ``shape`` counts one sequence."""
    return rounded_up(_INT64 * sequences * shape.length) + rotary_tables(shape) + _SCALARS


def rotary_tables(shape: Shape) -> int:
    """Return the bytes of the cosines and sines that all layers use."""
    model = shape.model
    if not model.rotary_dim or model.structure.repeats_tables:
        return 0
    return 2 * rounded(shape.length * model.rotary_dim * shape.element)


def masks(shape: Shape, sequences: Bytes) -> Bytes:
    """Return the bytes of what eager attention adds to scores, or of which tokens are seen."""
    if shape.attention is Attention.SDPA:
        seen = rounded(shape.length**2) if shape.masked else 0
        return np.full_like(sequences, seen)
    kinds = 2 if shape.model.structure.alternates_window else 1
    return kinds * rounded_up(sequences * shape.length**2 * shape.element)
