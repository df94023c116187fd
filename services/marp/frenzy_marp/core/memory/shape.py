"""What one micro-batch looks like to one rank."""

from dataclasses import dataclass
from typing import Final

from frenzy_shared.domain.model import Attention, ModelArchitecture
from frenzy_shared.domain.plan import Loss, Precision

FP32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """What one micro-batch looks like to one rank. ``element`` is the bytes of a weight."""

    model: ModelArchitecture
    attention: Attention
    sequences: int
    length: int
    element: int
    loss: Loss = Loss.FULL

    @property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch."""
        return self.sequences * self.length

    def activation(self, width: int) -> int:
        """Return the bytes of ``width`` values per token in the compute precision."""
        return self.tokens * width * self.element

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
