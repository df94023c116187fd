"""Multiplicative corrections and bounds, learned from other groups of runs.

Keys are physical fields only. Every group of runs counts the same, however many rows it has: rows
of one source repeat each other's surprises. A key seen in few groups is shrunk towards no
correction, so that one odd source cannot move the rest.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run

Key = tuple[str, ...]

_SHRINK_GROUPS: Final = 2.0  # groups of evidence at which half a correction is believed
_LARGEST_SHIFT: Final = math.log(1.25)  # beyond it something is missing, not off
_LOW: Final = 0.05
_HIGH: Final = 0.95
_ENOUGH_GROUPS: Final = 3  # groups from which bounds are learned
_FULL_GROUP: Final = 8  # rows from which a group has its full weight


@dataclass(frozen=True, slots=True)
class Bounds:
    """Factors from the expected value to the lower and upper bound of one metric."""

    low: float
    high: float


# What the shipped public runs leave unexplained; used where no history is at hand.
PRIOR_BOUNDS: Final = {
    word.Metric.ALLOCATED: Bounds(0.90, 1.09),
    word.Metric.RESERVED: Bounds(0.83, 1.22),
    word.Metric.DEVICE: Bounds(0.80, 1.27),
}


@dataclass(frozen=True, slots=True)
class Residual:
    """Log of observed over predicted, with what it may be learned by."""

    metric: word.Metric
    keys: tuple[Key, ...]
    group: str
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Correction:
    """What other runs say about runs like this one."""

    shifts: dict[tuple[word.Metric, Key], float]
    bounds: dict[word.Metric, Bounds]

    def factor(self, metric: word.Metric, keys: tuple[Key, ...]) -> float:
        """Return the factor on the expected value: of the first key that is known."""
        for key in keys:
            shift = self.shifts.get((metric, key))
            if shift is not None:
                return math.exp(shift)
        return 1.0


NO_CORRECTION: Final = Correction({}, PRIOR_BOUNDS)


def correction_keys(run: Run) -> tuple[Key, ...]:
    """Return the physical keys of a run, the most specific first."""
    training = run.training
    sharded = str(run.parallelism.shard_degree > 1)
    adapted = str(training.adapter is not None)
    framework = training.framework.value
    return (
        (framework, adapted, sharded, training.loss.value, str(training.compiled)),
        (framework, adapted, sharded),
        (framework,),
    )


def fit(residuals: Iterable[Residual]) -> Correction:
    """Learn shifts by key, and bounds from what is left after them."""
    rows = tuple(residuals)
    shifts = _shifts(rows)
    bare = Correction(shifts, {})
    left: dict[word.Metric, list[tuple[float, float]]] = defaultdict(list)
    sizes = _sizes(rows)
    for row in rows:
        rest = row.log_ratio - math.log(bare.factor(row.metric, row.keys))
        size = sizes[row.metric, row.group]
        left[row.metric].append((rest, min(1.0, size / _FULL_GROUP) / size))
    bounds = dict(PRIOR_BOUNDS)
    for metric, rests in left.items():
        groups = sum(1 for known, _ in sizes if known is metric)
        if groups >= _ENOUGH_GROUPS:
            low, high = _quantile(rests, _LOW), _quantile(rests, _HIGH)
            bounds[metric] = Bounds(math.exp(min(low, 0.0)), math.exp(max(high, 0.0)))
    return Correction(shifts, bounds)


def _shifts(rows: tuple[Residual, ...]) -> dict[tuple[word.Metric, Key], float]:
    by_key: dict[tuple[word.Metric, Key], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        for key in row.keys:
            by_key[row.metric, key][row.group].append(row.log_ratio)
    shifts: dict[tuple[word.Metric, Key], float] = {}
    for name, groups in by_key.items():
        trust = len(groups) / (len(groups) + _SHRINK_GROUPS)
        shift = trust * fmean(median(values) for values in groups.values())
        shifts[name] = max(-_LARGEST_SHIFT, min(_LARGEST_SHIFT, shift))
    return shifts


def _sizes(rows: tuple[Residual, ...]) -> dict[tuple[word.Metric, str], int]:
    sizes: dict[tuple[word.Metric, str], int] = defaultdict(int)
    for row in rows:
        sizes[row.metric, row.group] += 1
    return sizes


def _quantile(weighted: list[tuple[float, float]], share: float) -> float:
    """Return the value below which ``share`` of the weight lies."""
    ordered = sorted(weighted)
    limit = share * sum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= limit:
            return value
    return ordered[-1][0]
