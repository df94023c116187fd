"""How well a band holds after twenty runs of one's own: each source stands for a cluster.

Of the rows of one framework, method and card in one source, twenty at random teach the service's
own correction, starting from what is shipped; the others are asked whether they lie below its
upper bound. They are other models and other shapes: for the very same model a band is narrower
(``benchmarks/memory``). Repeated with many draws; a draw is one cluster's history.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import mean
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.fitting import residuals
from frenzy_marp.core.learning_errors import LogError, correction
from frenzy_marp.core.learning_prior import unlearned

TAUGHT: Final = 20
_ASKED_AT_LEAST: Final = 6
_DRAWS: Final = 40
_METRICS: Final = (word.Metric.ALLOCATED, word.Metric.RESERVED)


@dataclass(frozen=True, slots=True)
class OwnRuns:
    """One source's rows of one key; ``above_high`` and ``above`` (the band) are means over draws.

    ``before`` is the share above the band before any run of one's own.
    """

    key: str
    rows: int
    above_high: float
    above: float
    before: float


def own_runs(cases: Sequence[Case]) -> tuple[OwnRuns, ...]:
    """Score every key with rows enough, largest first."""
    keyed: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        run, label = case.run, case.label
        about = (run.training.framework.value, run.training.method.value, run.card.name)
        for row in residuals([case]):
            if row.metric in _METRICS:
                keyed["/".join((label.group, row.metric.value, *about))].append(row.log_ratio)
    large = [(k, v) for k, v in keyed.items() if len(v) >= TAUGHT + _ASKED_AT_LEAST]
    return tuple(_scored(*entry) for entry in sorted(large, key=lambda entry: -len(entry[1])))


def _scored(key: str, errors: list[float]) -> OwnRuns:
    believed = unlearned(emulated=False)
    beyond: list[float] = []
    widths: list[float] = []
    for seed in range(_DRAWS):
        drawn = random.Random(f"{key}:{seed}").sample(errors, len(errors))
        own = [LogError(error, error) for error in drawn[:TAUGHT]]
        learned = correction([own, own, []], believed)
        high = learned.factor * (1 + learned.above)
        beyond.append(mean(exp(error) > high for error in drawn[TAUGHT:]))
        widths.append(learned.above)
    before = mean(exp(error) > 1 + believed.above for error in errors)
    return OwnRuns(key, len(errors), mean(beyond), mean(widths), before)
