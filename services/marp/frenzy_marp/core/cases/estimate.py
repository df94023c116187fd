"""The answer for one run: every metric with its bounds, what it is made of, and whether it fits."""

import math
from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.corrections import (
    NO_CORRECTION,
    PRIOR_BOUNDS,
    Bounds,
    Correction,
    correction_keys,
)
from frenzy_marp.core.cases.overhead import GIB, levels
from frenzy_marp.core.cases.prediction import predict_moments

_NINETY_FIFTH: Final = 1.645  # standard deviations


@dataclass(frozen=True, slots=True)
class Range:
    """A value with its bounds, GiB."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class CaseEstimate:
    """Predictions for one run, GiB.

    ``verdict`` compares the upper bound of what the run requires with the card's capacity; None
    without one.
    """

    allocated: Range
    reserved: Range
    device: Range
    required: Range
    moment: str
    terms_gib: tuple[tuple[str, float], ...]
    verdict: word.Outcome | None
    p_oom: float | None

    def of(self, metric: word.Metric) -> Range:
        """Return the range of a metric; ``active`` blocks are allocated, ``unknown`` reserved."""
        if metric in {word.Metric.ALLOCATED, word.Metric.ACTIVE}:
            return self.allocated
        return self.device if metric is word.Metric.DEVICE else self.reserved


def estimate_run(run: Run, correction: Correction = NO_CORRECTION) -> CaseEstimate:
    """Predict one run."""
    moments = predict_moments(run)
    expected = levels(run, moments)
    keys = correction_keys(run)

    def ranged(metric: word.Metric, size: float) -> Range:
        bounds = correction.bounds.get(metric, PRIOR_BOUNDS[metric])
        return _range(size / GIB * correction.factor(metric, keys), bounds)

    allocated = ranged(word.Metric.ALLOCATED, expected.allocated)
    reserved = ranged(word.Metric.RESERVED, expected.reserved)
    reserved = _at_least(reserved, allocated)
    device = _at_least(ranged(word.Metric.DEVICE, expected.device), allocated)
    factor = correction.factor(word.Metric.ALLOCATED, keys)
    bounds = correction.bounds.get(word.Metric.ALLOCATED, PRIOR_BOUNDS[word.Metric.ALLOCATED])
    required = _range(expected.required / GIB * factor, bounds)
    capacity = run.card.capacity_gib
    return CaseEstimate(
        allocated=allocated,
        reserved=reserved,
        device=device,
        required=required,
        moment=expected.moment.name,
        terms_gib=tuple((name, size / GIB) for name, size in expected.moment.terms if size > 0),
        verdict=None if capacity is None else _verdict(required, capacity),
        p_oom=None if capacity is None else _p_oom(required, capacity),
    )


def _range(expected: float, bounds: Bounds) -> Range:
    return Range(expected * bounds.low, expected, expected * bounds.high)


def _at_least(value: Range, floor: Range) -> Range:
    return Range(
        max(value.low, floor.low),
        max(value.expected, floor.expected),
        max(value.high, floor.expected),
    )


def _verdict(required: Range, capacity: float) -> word.Outcome:
    """Return "fits" only where the upper bound does: at most one run in twenty is to run out."""
    return word.Outcome.FITS if required.high <= capacity else word.Outcome.OOM


def _p_oom(required: Range, capacity: float) -> float:
    """Return the probability that the run needs more than the card has (log-normal)."""
    spread = math.log(required.high / required.expected) / _NINETY_FIFTH
    if spread <= 0 or capacity <= 0:
        return float(required.expected > capacity)
    distance = math.log(capacity / required.expected) / spread
    return 0.5 * math.erfc(distance / math.sqrt(2))
