"""How urgent a job is: priority, fair share and waiting on one scale, that of priority points.

Ours; the published scheduler has no priorities. A point is worth an hour of waiting in line, and
twenty points double a job's weight where policies weigh. So a later job of higher priority goes
first, but only for so long: nobody is overtaken without end.
"""

import math
from typing import Final

POINT_MS: Final = 3_600_000
DOUBLING_POINTS: Final = 20
NORMAL: Final = 50


def weight(priority: int, standing: float) -> float:
    """Return how much a job counts beside one of normal priority and fair standing, which has 1.

    ``standing`` is above 1 for projects that have had less than their share; see ``shares``.
    """
    return math.exp2((priority - NORMAL) / DOUBLING_POINTS) * standing


def turn_ms(arrived_ms: int, priority: int, standing: float) -> float:
    """Return when a job of normal priority must have arrived to be next in line instead."""
    points = priority - NORMAL + DOUBLING_POINTS * math.log2(standing)
    return arrived_ms - points * POINT_MS
