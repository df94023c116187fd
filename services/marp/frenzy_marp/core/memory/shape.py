"""What one micro-batch looks like to one rank."""

from dataclasses import dataclass
from typing import Final

from frenzy_shared.domain.model import Attention, ModelArchitecture
from frenzy_shared.domain.plan import Loss, Precision

FP32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """What one micro-batch looks like to one rank. ``element`` is the bytes of a weight.

    ``fused_dropout``: dropout saves a byte a value, as CUDA's operator does (native_dropout,
    derivatives.yaml), instead of factors of the compute precision.
    """

    model: ModelArchitecture
    attention: Attention
    sequences: int
    length: int
    element: int
    loss: Loss = Loss.FULL
    fused_dropout: bool = False

    @property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch."""
        return self.sequences * self.length

    def activation(self, width: int) -> int:
        """Return the bytes of ``width`` values per token in the compute precision."""
        return self.tokens * width * self.element

    def dropped(self, width: int) -> int:
        """Return the bytes that dropout of ``width`` values per token saves."""
        return self.tokens * width * (1 if self.fused_dropout else self.element)

    @property
    def masked(self) -> bool:
        """Tell whether attention takes an explicit mask: some token is outside its window."""
        window = self.model.sliding_window
        return window is not None and self.length >= window

    @property
    def scores(self) -> int:
        """Return how many attention scores one layer has."""
        return self.sequences * self.model.num_heads * self.length * self.length


def element_bytes(precision: Precision) -> int:
    """Return the bytes of one weight or activation."""
    return FP32_BYTES if precision is Precision.FP32 else 2
