"""What is believed of a prediction before any run of one's own."""

from functools import cache
from math import expm1, log
from typing import Final

from frenzy_marp.core.cases.corrections import HIGH, LOW
from frenzy_marp.core.cases.learned import usual_errors
from frenzy_marp.core.learning_errors import NOTHING_LEARNED, Correction

_ODDS_BEYOND: Final = log(HIGH / (1 - HIGH))


@cache
def unlearned(*, emulated: bool) -> Correction:
    """Return the correction of memory that nobody's runs have changed.

    On emulated devices the band of ``benchmarks/memory``. On real ones what the shipped public
    runs of Hugging Face's models show: their errors cancel (no factor), and nine in ten lie
    inside the band. One's own runs narrow or widen it from there.
    """
    if emulated:
        return NOTHING_LEARNED
    errors = usual_errors()
    low, high = errors.quantile(LOW), errors.quantile(HIGH)
    return Correction(below=-expm1(low), above=expm1(high), scale=high / _ODDS_BEYOND)
