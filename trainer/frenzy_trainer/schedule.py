"""The learning rate of every step, as a pure function: nothing to save, nothing to restore."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Linear warm-up to ``peak``, then constant, or a half cosine down to zero."""

    kind: Literal["constant", "cosine"]
    peak: float
    warmup_steps: int
    total_steps: int

    def learning_rate(self, step: int) -> float:
        """Return the rate of optimizer step ``step``, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        if self.kind == "constant":
            return self.peak
        decay = max(1, self.total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / decay)
        return self.peak * 0.5 * (1 + math.cos(math.pi * progress))
