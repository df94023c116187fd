"""The answer for one run: every metric with its bounds, what it is made of, and whether it fits."""

import math
from dataclasses import dataclass

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.corrections import HIGH, LOW, Correction, Errors, correction_keys
from frenzy_marp.core.cases.overhead import GIB, Levels, levels
from frenzy_marp.core.cases.prediction import predict_moments


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


def estimate_run(run: Run, correction: Correction) -> CaseEstimate:
    """Predict one run with what measured runs taught."""
    found = levels(run, predict_moments(run))
    keys = correction_keys(run)
    errors = correction.errors[word.Metric.ALLOCATED]

    def ranged(metric: word.Metric) -> Range:
        size, scale = of_metric(found, metric)
        expected = size / GIB * math.exp(correction.shift(metric, keys))
        return _range(expected, scale, correction.errors[metric])

    allocated = ranged(word.Metric.ALLOCATED)
    moved = correction.shift(word.Metric.ALLOCATED, keys)
    moved += correction.required_scales * found.required_scale
    required = _range(found.required / GIB * math.exp(moved), found.required_scale, errors)
    capacity = run.card.capacity_gib
    return CaseEstimate(
        allocated=allocated,
        reserved=_at_least(ranged(word.Metric.RESERVED), allocated),
        device=_at_least(ranged(word.Metric.DEVICE), allocated),
        required=required,
        moment=found.moment.name,
        terms_gib=tuple((name, size / GIB) for name, size in found.moment.terms if size > 0),
        verdict=None if capacity is None else _verdict(required, capacity),
        p_oom=None
        if capacity is None
        else _p_oom(required.expected, found.required_scale, errors, capacity),
    )


def of_metric(found: Levels, metric: word.Metric) -> tuple[float, float]:
    """Return the expected bytes of a metric, and their scale of error."""
    if metric in {word.Metric.ALLOCATED, word.Metric.ACTIVE}:
        return found.allocated, found.allocated_scale
    if metric is word.Metric.DEVICE:
        return found.device, found.device_scale
    return found.reserved, found.reserved_scale


def _range(expected: float, scale: float, errors: Errors) -> Range:
    low, high = min(0.0, errors.quantile(LOW)), max(0.0, errors.quantile(HIGH))
    return Range(expected * math.exp(low * scale), expected, expected * math.exp(high * scale))


def _at_least(value: Range, floor: Range) -> Range:
    return Range(
        max(value.low, floor.low),
        max(value.expected, floor.expected),
        max(value.high, floor.expected),
    )


def _verdict(required: Range, capacity: float) -> word.Outcome:
    """Return "fits" only where the upper bound does: at most one run in twenty is to run out."""
    return word.Outcome.FITS if required.high <= capacity else word.Outcome.OOM


def _p_oom(expected: float, scale: float, errors: Errors, capacity: float) -> float:
    """Return the share of runs whose error is larger than what the card has left."""
    if capacity <= 0:
        return 1.0
    return errors.above(math.log(capacity / expected) / scale)
