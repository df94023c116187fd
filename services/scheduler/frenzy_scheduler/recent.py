"""What was submitted of late: the best guess at what will be."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from frenzy_scheduler.core.decisions import Progress, QueuedJob
from frenzy_scheduler.core.future import Arrivals
from frenzy_scheduler.documents import Documents
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.errors import InvalidSpec, NotFound
from frenzy_shared.state.port import StateStore

_JOBS: Final = 100  # that are looked at
_MOST_S: Final = 24 * 3600.0  # that they may be old
_LEAST_S: Final = 3600.0  # a few jobs at once are no stream of jobs


@dataclass(kw_only=True)
class Recent:
    """Reads the last submissions; what a job was like is remembered."""

    store: StateStore
    clock: Clock
    documents: Documents
    _alike: dict[JobId, QueuedJob | None] = field(default_factory=dict)

    async def arrivals(self) -> Arrivals:
        """Return how often jobs came and what they were like."""
        page = await self.store.list_jobs(
            project=None, states=frozenset(), page_size=_JOBS, page_token="", labels={}
        )
        now_ms = self.clock.now_ms()
        recent = [job for job in page.jobs if now_ms - job.created_ms <= _MOST_S * 1000]
        found = await asyncio.gather(*(self._like(record) for record in recent))
        jobs = tuple(job for job in found if job is not None)
        if not jobs:
            return Arrivals()
        oldest_ms = min(record.created_ms for record in recent)
        full = len(recent) == _JOBS  # else there were no others in all this time
        span_s = (now_ms - oldest_ms) / 1000 if full else _MOST_S
        self._alike = {record.id: self._alike.get(record.id) for record in recent}
        return Arrivals(per_s=len(jobs) / max(span_s, _LEAST_S), jobs=jobs)

    async def _like(self, record: JobRecord) -> QueuedJob | None:
        """Return a job as it arrived; None while and when it has no plans."""
        if self._alike.get(record.id) is None:
            plans = await self.store.plans(record.id)
            if plans is None or not plans.plans:
                return None
            self._alike[record.id] = QueuedJob(
                id=record.id,
                sequence=record.sequence,
                plans=plans.plans,
                progress=Progress(steps_left=await self._steps(record)),
                project=record.project,
                priority=record.priority,
            )
        return self._alike[record.id]

    async def _steps(self, record: JobRecord) -> float | None:
        try:
            steps = (await self.documents.spec(record.id)).max_steps
        except (NotFound, InvalidSpec):
            return None
        return None if steps is None else float(steps)
