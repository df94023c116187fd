"""Jobs that wait for other jobs: what they wait for, and the end of those that never can start."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from frenzy_scheduler.changes import job_change
from frenzy_scheduler.core.dependencies import Found, broken
from frenzy_scheduler.core.facts import TimerKind
from frenzy_scheduler.core.steps import move, timers
from frenzy_scheduler.jobs import apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord, JobState, StopReason
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)


async def depended_on(store: StateStore, waiting: Iterable[JobRecord]) -> Found:
    """Return the records of all jobs that some of these wait for."""
    wanted = sorted({job for record in waiting for job in (*record.depends_on, *record.after)})
    found = await asyncio.gather(*(store.job(job) for job in wanted))
    return dict(zip(wanted, found, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependents:
    """Cancels queued jobs whose dependencies did not succeed."""

    store: StateStore
    clock: Clock
    leadership: Leadership
    metrics: Metrics

    async def cancel_broken(self, queue: Iterable[JobRecord], found: Found) -> set[JobId]:
        """Cancel what can never start; return which jobs that were."""
        doomed = [(record, why) for record in queue if (why := broken(record, found))]
        done = await asyncio.gather(*(self._cancel(record, why) for record, why in doomed))
        return {record.id for (record, _), over in zip(doomed, done, strict=True) if over}

    async def _cancel(self, record: JobRecord, why: str) -> bool:
        after = replace(
            record,
            state=JobState.CANCELLED,
            reason=StopReason.CANCELLED_BY_POLICY,
            message=why,
            finished_ms=self.clock.now_ms(),
        )
        step = move(record, after, clear_timers=timers(record, TimerKind.BACKOFF))
        change = job_change(step, lease=self.leadership.proof, documents={"pending": None})
        result = await apply(self.store, f"dependents:{record.id}:{record.version}", change)
        if result.ok:
            self.metrics.moved(replace(after, version=result.version))
            log.info("job %s is cancelled: %s", record.id, why, extra={"job": record.id})
        elif lease_lost(result):
            self.leadership.lose()
        return result.ok
