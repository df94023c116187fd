"""Seeded workloads with the marginals of published traces.

| profile | GPUs | duration | arrivals |
|---|---|---|---|
| philly | shares of 82,247 Philly jobs (Jeon et al., ATC'19) | log-normal, median 1,144 s, sigma 2.16, fitted to them | Poisson |
| helios | mean 3.7 GPUs, most jobs ask for one (Hu et al., SC'21, table 2) | log-normal, mean 6,652 s, median 206 s | Poisson |
| newtrace | as helios | log-normal, median 1 h, sigma 1.4: longer jobs, after the workload of that name in Sia (SOSP'23); the numbers are ours | Poisson, busy days and quiet nights |

Durations are at the GPUs asked for and end at three days, so that one job does not decide a mean.
"""  # noqa: E501 - a table

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frenzy_shared.domain.ids import JobId
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.jobs import TraceJob

MAX_JOBS: Final = 1_000_000
_LONGEST_S: Final = 72 * 3600.0
_SHORTEST_S: Final = 30.0
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Marginals of one family of workloads. ``swing`` is the daily change of the arrival rate.

    ``per_hour`` is ours: a rate that keeps a cluster of 64 mixed GPUs contended.
    """

    shares: Mapping[int, float]  # GPUs -> share of jobs
    median_s: float
    sigma: float
    per_hour: float
    swing: float = 0.0


_PHILLY_SHARES: Final = {1: 0.932, 2: 0.022, 4: 0.023, 8: 0.020, 16: 0.003}
_HELIOS_SHARES: Final = {1: 0.56, 2: 0.11, 4: 0.10, 8: 0.18, 16: 0.03, 32: 0.02}

PROFILES: Final = {
    "philly": Profile(shares=_PHILLY_SHARES, median_s=1144, sigma=2.16, per_hour=60),
    "helios": Profile(shares=_HELIOS_SHARES, median_s=206, sigma=2.64, per_hour=60),
    "newtrace": Profile(shares=_HELIOS_SHARES, median_s=3600, sigma=1.4, per_hour=20, swing=0.7),
}


def generate(
    profile: str, jobs: int, *, per_hour: float | None = None, largest: int, seed: int = 0
) -> list[TraceJob]:
    """Draw ``jobs`` jobs; none asks for more than ``largest`` GPUs.

    They arrive at ``per_hour`` on average, at the profile's own rate when that is None.

    Raises:
        InvalidScenario: an unknown profile, or counts and rates that are not positive.
    """
    found = PROFILES.get(profile)
    if found is None:
        raise InvalidScenario(
            f"no workload is called {profile[:40]!r}",
            suggestions=[f"known workloads: {', '.join(PROFILES)}"],
        )
    if not 1 <= jobs <= MAX_JOBS:
        raise InvalidScenario(f"jobs is {jobs}; it must be from 1 to {MAX_JOBS}")
    hourly = found.per_hour if per_hour is None else per_hour
    if not 0 < hourly < math.inf:
        raise InvalidScenario(f"jobs per hour is {per_hour}; it must be positive")
    draw = random.Random(f"{seed}/{profile}")  # noqa: S311 - not a secret
    at_s = 0.0
    made: list[TraceJob] = []
    for number in range(jobs):
        rate = hourly * (1 + found.swing * math.sin(2 * math.pi * at_s / _DAY_S)) / 3600
        at_s += draw.expovariate(rate)
        made.append(_job(f"{profile}-{number}", at_s, found, largest, draw))
    return made


def _job(name: str, at_s: float, profile: Profile, largest: int, draw: random.Random) -> TraceJob:
    gpus = draw.choices(list(profile.shares), weights=list(profile.shares.values()))[0]
    duration_s = profile.median_s * math.exp(draw.gauss(0.0, profile.sigma))
    return TraceJob(
        id=JobId(name),
        submit_s=at_s,
        duration_s=min(max(duration_s, _SHORTEST_S), _LONGEST_S),
        gpus_requested=min(gpus, largest),
    )
