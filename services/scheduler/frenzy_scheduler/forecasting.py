"""Forecasts of the live queue: made on demand, off the event loop, and shared for a moment."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Final

from frenzy_scheduler.core.decisions import Strategy
from frenzy_scheduler.core.forecast import Band, Forecast, forecast
from frenzy_scheduler.core.future import Present
from frenzy_scheduler.recent import Recent
from frenzy_scheduler.situation import Look, Situation
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.messages.answers import Basis, Eta, TimeBand
from frenzy_shared.times import moment

_FRESH_S: Final = 2.0  # several who ask at once get one answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A situation, and what is predicted from it."""

    situation: Situation
    now_ms: int
    predicted: Forecast

    @property
    def basis(self) -> Basis:
        """Return what the predictions rest on."""
        cut_off_s = self.predicted.cut_off_s
        reaches = None if cut_off_s is None else _after(self.now_ms, cut_off_s)
        return Basis(futures=self.predicted.futures, reaches=reaches)

    def eta(self, job: JobId) -> Eta | None:
        """Return when a job starts and ends; None when nobody can know."""
        found = self.predicted.etas.get(job)
        if found is None:
            return None
        start = None if found.start is None else self._band(found.start)
        return Eta(start=start, end=self._band(found.end))

    def _band(self, band: Band) -> TimeBand:
        moments = [
            None if seconds is None else _after(self.now_ms, seconds)
            for seconds in (band.p50_s, band.p90_s)
        ]
        return TimeBand(p50=moments[0], p90=moments[1])


@dataclass(kw_only=True)
class Forecasting:
    """Looks at everything and looks ahead. ``start_prior_s`` is a start's time before any was."""

    clock: Clock
    policy: Strategy
    look: Look
    recent: Recent
    start_prior_s: float
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _last: Outlook | None = None
    _made_at: float = 0.0

    async def outlook(self, about: JobRecord | None = None) -> Outlook:
        """Return a fresh outlook that knows a job as it is now, if one is given.

        The computation leaves the event loop free for placing jobs.
        """
        async with self._lock:
            last, age_s = self._last, self.clock.monotonic() - self._made_at
            if last is None or age_s > _FRESH_S or not _knows(last, about):
                self._last = last = await self._look_ahead()
                self._made_at = self.clock.monotonic()
            return last

    async def _look_ahead(self) -> Outlook:
        arrivals = await self.recent.arrivals()
        situation = await self.look.at_everything(ahead=True)
        now_ms = self.clock.now_ms()
        present = Present(
            queue=situation.queue,
            running=situation.running,
            snapshot=situation.snapshot,
            now_ms=now_ms,
            policy=self.policy,
            ledger=situation.ledger,
            arrivals=arrivals,
            start_s=self._start_s(situation),
        )
        predicted = await asyncio.to_thread(forecast, present)
        return Outlook(situation=situation, now_ms=now_ms, predicted=predicted)

    def _start_s(self, situation: Situation) -> float:
        launches = [r.launch_ms for r in situation.records.values() if r.launch_ms is not None]
        return median(launches) / 1000 if launches else self.start_prior_s


def _knows(outlook: Outlook, about: JobRecord | None) -> bool:
    known = None if about is None else outlook.situation.records.get(about.id)
    return about is None or (known is not None and known.version == about.version)


def _after(now_ms: int, seconds: float) -> datetime:
    return moment(1000 * round(now_ms / 1000 + seconds))
