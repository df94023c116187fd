"""Fair share: what projects have had of the cluster, and what that says about their turn.

Use fades by half every ``half_life_s``. A project counts by its dominant resource (Ghodsi et al.,
"Dominant Resource Fairness", NSDI'11): the kind of which it has had the largest part. Ours: its
standing is 2 to the power of the part of the cluster that it lacks, so projects that have hardly
used anything stand alike, and the worst and the best are a factor of two apart.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from frenzy_scheduler.core.admission import Holding
from frenzy_shared.domain.ids import ProjectName

_FARTHEST: Final = 0.5  # of the exponent, either way
_FORGOTTEN_DEVICE_S: Final = 1.0

DeviceSeconds = Mapping[ProjectName, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Device-seconds by project and kind, faded to ``at_ms``."""

    at_ms: int
    device_s: DeviceSeconds = field(default_factory=dict[ProjectName, Mapping[str, float]])


def account(usage: Usage, held: Iterable[Holding], now_ms: int, half_life_s: float) -> Usage:
    """Return the usage now, when ``held`` was held since it was last looked at.

    A clock that went back changes nothing but ``at_ms``.
    """
    seconds = max(now_ms - usage.at_ms, 0) / 1000
    left = math.exp2(-seconds / half_life_s)
    per_device_s = _longest_s(half_life_s) * (1 - left)  # the integral of what fades meanwhile
    total = {
        project: {kind: had * left for kind, had in kinds.items()}
        for project, kinds in usage.device_s.items()
    }
    for holding in held:
        kinds = total.setdefault(holding.project, {})
        kinds[holding.kind] = kinds.get(holding.kind, 0.0) + holding.count * per_device_s
    kept = {
        project: {kind: had for kind, had in kinds.items() if had >= _FORGOTTEN_DEVICE_S}
        for project, kinds in total.items()
    }
    return Usage(at_ms=now_ms, device_s={name: kinds for name, kinds in kept.items() if kinds})


def standings(
    usage: Usage,
    present: Collection[ProjectName],
    weights: Mapping[ProjectName, float],
    capacity: Mapping[str, int],
    half_life_s: float,
) -> dict[ProjectName, float]:
    """Return each present project's standing: 1 at its fair share, above when it had less.

    Fair is the part of everything used that its weight (1 unless given) is of all weights. Those
    with usage share with those ``present``. ``capacity`` counts devices by kind.
    """
    names = sorted({*present, *usage.device_s})
    parts = {name: _dominant(usage.device_s.get(name, {}), capacity, half_life_s) for name in names}
    used, weight = sum(parts.values()), sum(weights.get(name, 1.0) for name in names)
    found: dict[ProjectName, float] = {}
    for name in present:
        lacks = used * weights.get(name, 1.0) / weight - parts[name]
        found[name] = math.exp2(min(max(lacks, -_FARTHEST), _FARTHEST))
    return found


def _dominant(
    device_s: Mapping[str, float], capacity: Mapping[str, int], half_life_s: float
) -> float:
    """Return the largest part that a project has had of any kind that there is, 0 to 1."""
    longest_s = _longest_s(half_life_s)
    parts = (
        had / (capacity[kind] * longest_s) for kind, had in device_s.items() if capacity.get(kind)
    )
    return min(max(parts, default=0.0), 1.0)


def _longest_s(half_life_s: float) -> float:
    """Return what one device counts that was always held."""
    return half_life_s / math.log(2)
