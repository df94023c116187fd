"""When jobs will start and end, as bands: several possible futures, run with the scheduler's cycle.

Deterministic for a seed. The work is bounded: where a future costs much, fewer are run, and one
that is too long is cut off; the answer says so. How well the bands hold, and where these numbers
come from, is measured in benchmarks/eta.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Final

from frenzy_scheduler.core.decisions import RunningJob
from frenzy_scheduler.core.future import Budget, Future, Present, Window
from frenzy_scheduler.core.luck import Luck
from frenzy_shared.domain.ids import JobId

# The middles of five equally likely parts of a normal distribution.
_CLOUD: Final = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
_STEADY: Final = Window(share=0.03, most_s=30.0)
_ELASTIC: Final = Window(share=0.1, most_s=120.0)


@dataclass(frozen=True, slots=True)
class Blur:
    """A log-normal cloud of sigma ``spread`` around each outcome, moved ``delay`` times later."""

    spread: float
    delay: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What forecasts take for granted, and how much they may compute.

    ``sigma`` is that of log(real / predicted step time), per job and plan, where nothing is
    measured yet; ``early_end_share`` the share of jobs that end before their last step.
    Every outcome gets a ``Blur``, for what few futures leave out: ``steady``; ``measured`` where a
    job runs at a measured speed and is not stopped; under a policy that stops and resizes jobs,
    where futures come out too early, one for starts and two for ends. A start is never moved
    beyond its end's own move: from there to the end it keeps what its future takes.
    At most ``futures`` are run; they may look at ``work`` jobs in all (200 ms or so on one
    core), and each at no more than its part of ``least_futures``.
    """

    sigma: float = 0.3
    early_end_share: float = 0.2
    steady: Blur = Blur(0.06, delay=1.02)
    measured: Blur = Blur(0.06)
    elastic_start: Blur = Blur(0.7, delay=1.8)
    elastic_end: Blur = Blur(0.4, delay=1.35)
    elastic_running: Blur = Blur(0.38, delay=1.12)
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

    Jobs are missing of which nobody can know: without a plan for the nodes that are there,
    blocked, or running with a plan that is not known any more.
    """
    runs = _runs(present, seed, assumptions)
    etas: dict[JobId, Eta] = {}
    for running in present.running:
        if running.plan is not None:
            blur = _of_running(running, present, assumptions)
            etas[running.id] = Eta(start=None, end=band(_ends(runs, running.id), blur))
    steady = assumptions.steady
    at_start = assumptions.elastic_start if present.preemptive else steady
    at_end = assumptions.elastic_end if present.preemptive else steady
    for queued in present.queue:
        if present.can_start(queued):
            starts = [run.starts.get(queued.id, inf) for run in runs]
            etas[queued.id] = bands(starts, _ends(runs, queued.id), at_start, at_end)
    cut_offs = [run.cut_off_s for run in runs if run.cut_off_s is not None]
    return Forecast(etas=etas, futures=len(runs), cut_off_s=min(cut_offs, default=None))


def bands(starts_s: Sequence[float], ends_s: Sequence[float], at_start: Blur, at_end: Blur) -> Eta:
    """Return when a waiting job starts and ends; ``starts_s[i]`` and ``ends_s[i]`` are of a future.

    Each start is held against the end that is blurred alike: no quantile of starts is later than
    the same of ends.
    """
    held = [
        min(start, max(end - (end_s - start_s), 0.0)) if end < inf else start
        for start_s, end_s in zip(starts_s, ends_s, strict=True)
        for start, end in zip(_cloud(start_s, at_start), _cloud(end_s, at_end), strict=True)
    ]
    return Eta(start=_band(held), end=band(ends_s, at_end))


def band(times_s: Sequence[float], blur: Blur) -> Band:
    """Return the median and the 90th percentile of a few outcomes, each blurred."""
    return _band([moved for seconds in times_s for moved in _cloud(seconds, blur)])


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


def _of_running(job: RunningJob, present: Present, assumptions: Assumptions) -> Blur:
    if present.preemptive:
        return assumptions.elastic_running
    return assumptions.steady if job.progress.step_s is None else assumptions.measured


def _cloud(seconds: float, blur: Blur) -> list[float]:
    return [seconds * blur.delay * exp(blur.spread * z) for z in _CLOUD]


def _band(cloud: Sequence[float]) -> Band:
    ordered = sorted(cloud)
    return Band(p50_s=_quantile(ordered, 0.5), p90_s=_quantile(ordered, 0.9))


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
