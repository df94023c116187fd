"""Learn corrections from measured runs; every source group counts the same, whatever its size.

Rows of one source repeat each other's surprises. So a key that one source alone has seen moves
nothing beyond that exact set-up, a key of several sources is shrunk towards no correction, and
errors are quantiles over groups. Fitting may look at a row's group; predicting cannot.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.censored import Outcome, outcomes, required_shift
from frenzy_marp.core.cases.corrections import LEVELS, Correction, Errors, Key, correction_keys
from frenzy_marp.core.cases.estimate import of_metric
from frenzy_marp.core.cases.overhead import GIB, levels
from frenzy_marp.core.cases.prediction import predict_moments

Shifts = dict[tuple[word.Metric, Key], float]
Rest = tuple[word.Metric, float, float]  # an error in units of its scale, and its weight

_HALF_TRUST_GROUPS: Final = 2.0  # groups beyond the first at which half a shift is believed
_HALF_TRUST_ROWS: Final = 4.0  # rows of one exact set-up, likewise
# What the allocator takes and what the device shows are off for the same reasons, in the same
# scale: their errors are one table.
_SAME_ERRORS: Final = {
    word.Metric.ALLOCATED: (word.Metric.ALLOCATED,),
    word.Metric.RESERVED: (word.Metric.RESERVED, word.Metric.DEVICE),
    word.Metric.DEVICE: (word.Metric.RESERVED, word.Metric.DEVICE),
}


@dataclass(frozen=True, slots=True)
class Residual:
    """Log of observed over predicted, with what it may be learned by."""

    metric: word.Metric
    keys: tuple[Key, ...]
    group: str
    log_ratio: float
    scale: float


def residuals(cases: Iterable[Case]) -> tuple[Residual, ...]:
    """Return what the analytical mode leaves of every reading that says something about a step."""
    found: list[Residual] = []
    for case in cases:
        if case.run.training.load_time_peak:
            continue
        predicted = levels(case.run, predict_moments(case.run))
        keys = correction_keys(case.run)
        for metric, measured in case.readings:
            learned = _learned_as(case, metric)
            if learned is not None and measured > 0:
                size, scale = of_metric(predicted, learned)
                ratio = math.log(measured * GIB / size)
                found.append(Residual(learned, keys, case.label.group, ratio, scale))
    return tuple(found)


def fit(
    rows: Sequence[Residual], ended: Sequence[Outcome] = (), *, shifted: bool = True
) -> Correction:
    """Learn shifts from all rows, and errors as they are where the shifts of others are used.

    Without ``shifted`` only the errors are learned: that is the analytical mode's own record.
    How runs ended moves ``required``.
    """
    shifts = _all_shifts(rows) if shifted else {}
    rest: list[Rest] = []
    for group in {row.group for row in rows}:
        others = [row for row in rows if row.group != group]
        bare = Correction(_all_shifts(others) if shifted else {}, {})
        own = [row for row in rows if row.group == group]
        rest += [
            (
                row.metric,
                (row.log_ratio - bare.shift(row.metric, row.keys)) / row.scale,
                1 / math.sqrt(sum(row.metric is other.metric for other in own)),
            )
            for row in own
        ]
    errors = {
        metric: _errors([(error, weight) for known, error, weight in rest if known in alike])
        for metric, alike in _SAME_ERRORS.items()
    }
    required = required_shift(ended, errors[word.Metric.ALLOCATED]) if shifted else 0.0
    return Correction(shifts, errors, required)


def usual_errors(rows: Sequence[Residual], frameworks: frozenset[str]) -> Errors:
    """Return how far off the allocated peak is in ``frameworks``: plain logarithms, no scale."""
    own = [
        row for row in rows if row.metric is word.Metric.ALLOCATED and row.keys[0][0] in frameworks
    ]
    sizes = Counter(row.group for row in own)
    return _errors([(row.log_ratio, 1 / math.sqrt(sizes[row.group])) for row in own])


def left_out(cases: Sequence[Case], *, shifted: bool = True) -> dict[str, Correction]:
    """Return for every group what the other groups teach (leave one group out)."""
    rows, ended = residuals(cases), outcomes(cases)
    return {
        group: fit(
            [row for row in rows if row.group != group],
            [outcome for outcome in ended if outcome.group != group],
            shifted=shifted,
        )
        for group in {case.label.group for case in cases}
    }


def _learned_as(case: Case, metric: word.Metric) -> word.Metric | None:
    """Return what a reading says something about; nothing where the metric is not settled."""
    if metric is word.Metric.UNKNOWN:
        return case.metric_guess
    return word.Metric.ALLOCATED if metric is word.Metric.ACTIVE else metric


def _all_shifts(rows: Sequence[Residual]) -> Shifts:
    """Learn level by level, each from what the one before left."""
    shifts: Shifts = {}
    left = [row.log_ratio for row in rows]
    levels = len(rows[0].keys) if rows else 0
    for level in range(levels):
        exact = level == levels - 1
        found = _shifts(rows, level, left, _exact_trust if exact else _shared_trust)
        shifts |= found
        left = [
            rest - found.get((row.metric, row.keys[level]), 0.0)
            for row, rest in zip(rows, left, strict=True)
        ]
    return shifts


def _shifts(
    rows: Sequence[Residual],
    level: int,
    left: Sequence[float],
    trust: Callable[[int, int], float],
) -> Shifts:
    """Return the shift of each key: what all its groups agree on, each less its own noise."""
    by_key: dict[tuple[word.Metric, Key], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row, rest in zip(rows, left, strict=True):
        by_key[row.metric, row.keys[level]][row.group].append(rest)
    shifts: Shifts = {}
    for name, groups in by_key.items():
        believed = trust(len(groups), sum(map(len, groups.values())))
        shift = believed * _agreed([_beyond_noise(values) for values in groups.values()])
        if shift:
            shifts[name] = shift
    return shifts


def _agreed(values: Sequence[float]) -> float:
    """Return the value nearest to 0 where all have one sign, else 0."""
    if min(values) > 0:
        return min(values)
    return max(values) if max(values) < 0 else 0.0


def _shared_trust(groups: int, _rows: int) -> float:
    return (groups - 1) / (groups - 1 + _HALF_TRUST_GROUPS)


def _exact_trust(_groups: int, rows: int) -> float:
    return rows / (rows + _HALF_TRUST_ROWS)


def _beyond_noise(values: Sequence[float]) -> float:
    """Return the median, shrunk by its own standard error (from the absolute deviations)."""
    middle = median(values)
    spread = 1.4826 * median(abs(value - middle) for value in values)
    noise = spread / math.sqrt(len(values))
    return math.copysign(max(0.0, abs(middle) - noise), middle)


def _errors(weighted: Sequence[tuple[float, float]]) -> Errors:
    """Return the quantiles of errors, each with its weight: a group weighs the root of its rows."""
    ordered = sorted(weighted)
    return Errors(tuple(_quantile(ordered, level) for level in LEVELS))


def _quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value below which ``share`` of the weight lies."""
    limit = share * sum(weight for _, weight in weighted)
    passed = 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= limit:
            return value
    return weighted[-1][0] if weighted else 0.0
