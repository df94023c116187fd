"""Who predicts: the published formula, the term model, or the term model with what was learned."""

from enum import StrEnum

from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.estimate import CaseEstimate, estimate_run
from frenzy_marp.core.cases.learned import shipped
from frenzy_marp.core.cases.published import published_estimate


class Mode(StrEnum):
    """Who predicts."""

    FRENZY_2024 = "frenzy-2024"
    ANALYTICAL = "analytical"
    LEARNED = "learned"


def predict(run: Run, mode: Mode) -> CaseEstimate:
    """Predict one run with what is shipped of measured runs: errors, and in ``learned`` shifts."""
    if mode is Mode.FRENZY_2024:
        return published_estimate(run)
    return estimate_run(run, shipped(shifted=mode is Mode.LEARNED))
