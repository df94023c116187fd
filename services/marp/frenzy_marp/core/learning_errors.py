"""From observed errors to a correction: a robust centre, a conformal band, a chance of more.

An error is the logarithm of observed over predicted. What is not known exactly is an interval: a
run that ran out of memory needed at least what the device had, one that survived at most that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, expm1, inf, log, log1p
from statistics import median
from typing import Final

PRIOR_ERROR: Final = 0.05  # half a band before anything was observed: benchmarks/memory
# reserved / allocated with expandable segments, as SimuMax measures it; up to 1.25 without.
RESERVED_PER_ALLOCATED: Final = 1 / 0.94
MAX_FACTOR: Final = 4.0  # that runs may bring about, either way

_PRIOR_RUNS: Final = 5.0  # the weight of what was believed before any run
_SHRINKAGE: Final = (4.0, 4.0, 2.0)  # runs that count as much as the level above, coarse to fine
_CONFIDENCE: Final = 0.99  # of the conformal bounds, once there are runs enough for it
# What an error with a Laplace distribution exceeds once in 100 times, in medians of its absolute
# value. Errors of formulas have such tails: most runs are as predicted, few are far off.
_TAIL_PER_MEDIAN: Final = log(50) / log(2)
_WIDEST: Final = log(1.5)  # band; a run beyond it still counts in the chance of running out
_ODDS: Final = 39  # to 1 that a value is below the upper end of a band that is believed in
_PRIOR_SCALE: Final = log1p(PRIOR_ERROR) / log(_ODDS)  # of a logistic tail
_BEYOND: Final = 0.1  # how far above its bound an error of a run out of memory lies, on average


@dataclass(frozen=True, slots=True)
class LogError:
    """The logarithm of true over predicted: between ``low`` and ``high``, which may be equal."""

    low: float
    high: float

    @classmethod
    def exactly(cls, ratio: float) -> "LogError":
        """Return the error of a measured ratio."""
        return cls(log(ratio), log(ratio))

    @classmethod
    def at_least(cls, ratio: float) -> "LogError":
        """Return the error of which only a lower bound is known."""
        return cls(log(ratio), inf)

    @classmethod
    def at_most(cls, ratio: float) -> "LogError":
        """Return the error of which only an upper bound is known."""
        return cls(-inf, log(ratio))

    @property
    def exact(self) -> bool:
        """Tell whether it was measured."""
        return self.low == self.high

    def beside(self, centre: float) -> "LogError":
        """Return what is left of it when ``centre`` is corrected."""
        return LogError(self.low - centre, self.high - centre)


@dataclass(frozen=True, slots=True)
class Correction:
    """What runs taught about a prediction: a factor, the band around it, and errors left over.

    ``below`` and ``above`` are shares of the corrected value. ``runs`` is 0 where nothing is known.
    ``scale`` is that of the logistic tail believed in before any run, in logarithms.
    ``demanded``: the factor is not what runs taught but what a job's own last attempt demands.
    ``reserved_ratio``: what torch's allocator reserves, per allocated byte.
    """

    factor: float = 1.0
    below: float = PRIOR_ERROR
    above: float = PRIOR_ERROR
    scale: float = _PRIOR_SCALE
    runs: int = 0
    left: tuple[LogError, ...] = ()
    demanded: bool = False
    reserved_ratio: float = RESERVED_PER_ALLOCATED

    def at_least(self, factor: float) -> "Correction":
        """Return it with ``factor`` where that is more."""
        if factor <= self.factor:
            return self
        more = log(factor / self.factor)
        left = tuple(error.beside(more) for error in self.left)
        return replace(self, factor=factor, left=left, demanded=True)

    def chance_beyond(self, room: float, blur: float = 0.0) -> float:
        """Return the probability that the truth is above ``room`` times the corrected value.

        Every run has one vote, and what was believed before has several. ``blur`` is a standard
        error that is not the prediction's own, such as that of a context's size.
        """
        if room <= 0:
            return 1.0
        margin, scale = log(room), self.scale + blur
        votes = sum(_beyond(error, margin, scale) for error in self.left)
        believed = _PRIOR_RUNS * _tail(margin / scale)
        return (believed + votes) / (_PRIOR_RUNS + len(self.left))


NOTHING_LEARNED: Final = Correction()
# Of a model whose wiring nobody checked: its activations are guessed from its sizes.
_GUESSED: Final = 0.4
STRUCTURE_ASSUMED: Final = Correction(
    below=_GUESSED, above=_GUESSED, scale=log1p(_GUESSED) / log(_ODDS)
)


def centre(levels: Sequence[Sequence[LogError]]) -> float:
    """Return the common log error of the finest level, coarse levels first.

    The median of each level, shrunk towards that of the level above by how few runs it has.
    """
    found = 0.0
    for errors, shrinkage in zip(levels, _SHRINKAGE, strict=True):
        points = _points(errors)
        if points:
            found += (median(points) - found) * len(points) / (len(points) + shrinkage)
    return max(-log(MAX_FACTOR), min(log(MAX_FACTOR), found))


def correction(
    levels: Sequence[Sequence[LogError]], believed: Correction = NOTHING_LEARNED
) -> Correction:
    """Return what runs teach, from errors that share little to errors that share everything.

    The band is conformal: it covers what is left of the errors of the finest level that has any.
    What was ``believed`` before any run fades with runs of the same model and plan shape; those of
    other models and plans do not narrow it.
    """
    depth = max((depth for depth, errors in enumerate(levels) if errors), default=None)
    if depth is None:
        return believed
    middle = centre(levels)
    left = tuple(error.beside(middle) for error in levels[depth])
    exact = sorted(error.low for error in left if error.exact)
    highest = sorted([*exact, *(error.low for error in left if error.high == inf)])
    alike = len(exact) if depth == len(levels) - 1 else 0
    fading = _PRIOR_RUNS / (_PRIOR_RUNS + alike)
    below, above = -log1p(-believed.below) * fading, log1p(believed.above) * fading
    return Correction(
        factor=exp(middle),
        below=-expm1(-max(below, _conformal([-error for error in reversed(exact)]))),
        above=expm1(max(above, _conformal(highest))),
        scale=believed.scale,
        runs=len(left),
        left=left,
    )


def reserved_ratio(levels: Sequence[Sequence[float]]) -> float:
    """Return reserved per allocated bytes from ratios that runs showed, coarse levels first.

    The median of each level, shrunk as ``centre`` is; at least 1.
    """
    found = log(RESERVED_PER_ALLOCATED)
    for ratios, shrinkage in zip(levels, _SHRINKAGE, strict=True):
        if ratios:
            found += (log(median(ratios)) - found) * len(ratios) / (len(ratios) + shrinkage)
    return max(1.0, exp(found))


def _points(errors: Sequence[LogError]) -> list[float]:
    """Return one number per error; a bound counts only where it contradicts what was measured."""
    exact = [error.low for error in errors if error.exact]
    middle = median(exact) if exact else 0.0
    above = [e.low for e in errors if e.high == inf and e.low > middle]
    below = [e.high for e in errors if e.low == -inf and e.high < middle]
    return exact + above + below


def _conformal(ascending: Sequence[float]) -> float:
    """Return the bound that a further error stays below with ``_CONFIDENCE``.

    Widened by 1/n, for the centre was fitted to the same n errors. Fewer than 99 errors do not
    show the tail: there it is at least that of Laplace's distribution as wide as they are.
    """
    count = len(ascending)
    if not count:
        return 0.0
    rank = min(count, ceil((count + 1) * _CONFIDENCE))
    tail = _TAIL_PER_MEDIAN * median(abs(error) for error in ascending)
    return min(_WIDEST, max(ascending[rank - 1] * (count + 1) / count, tail))


def _beyond(error: LogError, margin: float, scale: float) -> float:
    """Return the probability that one error is above ``margin``, given what is known of it."""
    if error.low >= margin:
        return 1.0
    if error.high <= margin:
        return 0.0
    if error.high == inf:
        return exp((error.low - margin) / _BEYOND)
    here, least = _tail(margin / scale), _tail(error.high / scale)
    return (here - least) / (1 - least) if least < 1 else 0.0


def _tail(score: float) -> float:
    """Return the share of the standard logistic distribution above ``score``."""
    if score > 0:
        small = exp(-score)
        return small / (1 + small)
    return 1 / (1 + exp(score))
