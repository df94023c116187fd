"""What measured runs say about predictions: shifts by physical keys, and how far off is usual.

A shift is the log of observed over predicted. Three levels are added, from the framework to the
exact set-up, so that a rare set-up inherits what its framework is known for. Errors are counted in
units of the prediction's own scale (``overhead.scales``): a run that is all weights is known to a
percent, one that is all logits is not, and one table of errors serves both.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run

Key = tuple[str, ...]

LARGEST_SHIFT: Final = math.log(1.25)  # beyond it something is missing, not off
LEVELS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995)
LOW: Final = 0.05
HIGH: Final = 0.95


@dataclass(frozen=True, slots=True)
class Errors:
    """Quantiles at ``LEVELS`` of log(observed / predicted) in units of the prediction's scale."""

    quantiles: tuple[float, ...]

    def quantile(self, level: float) -> float:
        """Return the error that a share ``level`` of runs stays below; one of ``LEVELS``."""
        return self.quantiles[LEVELS.index(level)]

    def above(self, error: float) -> float:
        """Return the share of runs with a larger error; tails fall off exponentially."""
        known = self.quantiles
        if error <= known[0]:
            return 1 - LEVELS[0] * math.exp(error - known[0])
        if error >= known[-1]:
            return (1 - LEVELS[-1]) * math.exp(known[-1] - error)
        place = bisect_left(known, error)
        width = known[place] - known[place - 1]
        part = (error - known[place - 1]) / width if width > 0 else 1.0
        return 1 - (LEVELS[place - 1] + part * (LEVELS[place] - LEVELS[place - 1]))


@dataclass(frozen=True, slots=True)
class Correction:
    """Shifts by metric and key, and what is left after them by metric.

    ``required_scales`` moves ``required`` by that many of its own scales.
    """

    shifts: Mapping[tuple[word.Metric, Key], float]
    errors: Mapping[word.Metric, Errors]
    required_scales: float = 0.0

    def shift(self, metric: word.Metric, keys: tuple[Key, ...]) -> float:
        """Return the log of the factor on the expected value."""
        total = sum(self.shifts.get((metric, key), 0.0) for key in keys)
        return max(-LARGEST_SHIFT, min(LARGEST_SHIFT, total))


def correction_keys(run: Run) -> tuple[Key, ...]:
    """Return the physical keys of a run, the most general first."""
    training = run.training
    framework = training.framework.value
    adapted = "adapters" if training.adapter is not None else "full"
    sharded = "sharded" if run.parallelism.shard_degree > 1 else "whole"
    return (
        (framework,),
        (framework, adapted, sharded, training.loss.value),
        (
            framework,
            training.method.value,
            run.parallelism.sharding.value,
            training.loss.value,
            training.checkpointing.value,
            training.packing.value,
            training.attention.value,
            ".".join(training.torch_version.split(".")[:2]),
            run.card.name,
        ),
    )
