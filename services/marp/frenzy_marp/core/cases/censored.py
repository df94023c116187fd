"""What outcomes alone teach about ``required``: a run that died needed more than its card had.

No reading says what a run requires; that it fitted, or ran out of memory, bounds it from one side
(censored evidence). The shift is the most likely one, in units of the prediction's own scale.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.corrections import Errors
from frenzy_marp.core.cases.overhead import GIB, levels
from frenzy_marp.core.cases.prediction import predict_moments

_MISLABELLED: Final = 0.05  # share of outcomes that are of another set-up than is told
# Shifts that are tried, in scales. None lowers ``required``: a run that dies costs more than memory
# that stays free.
_STEPS: Final = [step / 20 for step in range(41)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run's end; ``room`` is log(capacity / required) in units of the prediction's scale."""

    group: str
    ran_out: bool
    room: float


def outcomes(cases: Iterable[Case]) -> tuple[Outcome, ...]:
    """Return the outcomes that cases tell; every measured run fitted its card."""
    found: list[Outcome] = []
    for case in cases:
        capacity = case.run.card.capacity_gib
        if not capacity or not (case.outcome or case.readings):
            continue
        predicted = levels(case.run, predict_moments(case.run))
        room = math.log(capacity * GIB / predicted.required) / predicted.required_scale
        found.append(Outcome(case.label.group, case.outcome is word.Outcome.OOM, room))
    return tuple(found)


def required_shift(found: Sequence[Outcome], errors: Errors) -> float:
    """Return the most likely shift of ``required``, shrunk to 0 by a standard normal prior.

    A group weighs the root of its runs, as everywhere; without both outcomes there is no shift.
    """
    if len({outcome.ran_out for outcome in found}) < 2:
        return 0.0
    sizes: dict[str, int] = defaultdict(int)
    for outcome in found:
        sizes[outcome.group] += 1

    def likelihood(shift: float) -> float:
        evidence = sum(
            math.log(_chance(outcome, shift, errors)) / math.sqrt(sizes[outcome.group])
            for outcome in found
        )
        return evidence - shift**2 / 2

    return max(_STEPS, key=likelihood)


def _chance(outcome: Outcome, shift: float, errors: Errors) -> float:
    """Return the probability of what happened; a mislabelled outcome says nothing."""
    dies = errors.above(outcome.room - shift)
    told = dies if outcome.ran_out else 1 - dies
    return (1 - _MISLABELLED) * told + _MISLABELLED / 2
