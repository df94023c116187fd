"""When jobs will start and end, as bands: several possible futures, run with the scheduler's cycle.

Deterministic for a seed. The work is bounded: where a future costs much, fewer are run, and one
that is too long is cut off; the answer says so. How well the bands hold, and where these numbers
come from, is measured in benchmarks/eta.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Final

from frenzy_scheduler.core.future import Budget, Future, Present, Window
from frenzy_scheduler.core.luck import Luck
from frenzy_shared.domain.ids import JobId

# The middles of five equally likely parts of a normal distribution.
_CLOUD: Final = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
_STEADY: Final = Window(share=0.03, most_s=30.0)
_ELASTIC: Final = Window(share=0.1, most_s=120.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What forecasts take for granted, and how much they may compute.

    ``sigma`` is that of log(real / predicted step time), per job and plan, where nothing is
    measured yet; ``early_end_share`` the share of jobs that end before their last step.
    Every outcome is blurred log-normally, for what few futures leave out: by ``spread``, by
    ``measured_spread`` where a job runs at a measured speed and is not stopped, by
    ``elastic_spread`` under a policy that stops and resizes jobs.
    At most ``futures`` are run; they may look at ``work`` jobs in all (200 ms or so on one
    core), and each at no more than its part of ``least_futures``.
    """

    sigma: float = 0.3
    early_end_share: float = 0.2
    spread: float = 0.15
    measured_spread: float = 0.05
    elastic_spread: float = 0.5
    futures: int = 16
    least_futures: int = 3
    work: int = 80_000
    horizon_s: float = 60 * 86_400.0


USUAL: Final = Assumptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Seconds from now: as likely before ``p50_s`` as after, and in 9 of 10 cases before ``p90_s``.

    None: later than the forecast reaches.
    """

    p50_s: float | None
    p90_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """When a job starts (None: it has) and when it ends."""

    start: Band | None
    end: Band


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Bands by job, from so many futures. ``cut_off_s``: some of them ended there."""

    etas: Mapping[JobId, Eta]
    futures: int
    cut_off_s: float | None = None


def forecast(present: Present, *, seed: int = 0, assumptions: Assumptions = USUAL) -> Forecast:
    """Return when the present's jobs start and end.

    Jobs are missing of which nobody can know: without a plan, blocked, or running with one that
    is not known any more.
    """
    runs = _runs(present, seed, assumptions)
    etas: dict[JobId, Eta] = {}
    spread = assumptions.elastic_spread if present.preemptive else assumptions.spread
    for running in present.running:
        if running.plan is not None:
            known = running.progress.step_s is not None and not present.preemptive
            blur = assumptions.measured_spread if known else spread
            etas[running.id] = Eta(start=None, end=band(_ends(runs, running.id), blur))
    for queued in present.queue:
        if queued.plans and queued.blocked is None:
            starts = [run.starts.get(queued.id, inf) for run in runs]
            ends = _ends(runs, queued.id)
            etas[queued.id] = Eta(start=band(starts, spread), end=band(ends, spread))
    cut_offs = [run.cut_off_s for run in runs if run.cut_off_s is not None]
    return Forecast(etas=etas, futures=len(runs), cut_off_s=min(cut_offs, default=None))


def band(times_s: Sequence[float], spread: float) -> Band:
    """Return the median and the 90th percentile of a few outcomes, each blurred by ``spread``."""
    cloud = sorted(seconds * exp(spread * z) for seconds in times_s for z in _CLOUD)
    return Band(p50_s=_quantile(cloud, 0.5), p90_s=_quantile(cloud, 0.9))


def _runs(present: Present, seed: int, assumptions: Assumptions) -> list[Future]:
    """Run futures until there are enough, or another one would cost more than is left."""
    each = left = assumptions.work
    each //= assumptions.least_futures
    runs: list[Future] = []
    used = 0
    while len(runs) < assumptions.futures and left >= used:
        budget = Budget(min(each, left))
        future = Future(
            present,
            Luck(
                seed,
                len(runs),
                sigma=assumptions.sigma,
                early_end_share=assumptions.early_end_share,
            ),
            budget,
            window=_ELASTIC if present.preemptive else _STEADY,
            horizon_s=assumptions.horizon_s,
        )
        future.run()
        runs.append(future)
        used = min(each, left) - budget.left
        left -= used
    return runs


def _ends(runs: Sequence[Future], job: JobId) -> list[float]:
    return [run.ends.get(job, inf) for run in runs]


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Interpolate between plotting positions; None where that leads to infinity."""
    place = min(max(share * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if place == low:
        high = low
    if ordered[high] == inf:
        return None
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
