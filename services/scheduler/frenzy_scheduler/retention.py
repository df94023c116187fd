"""Finished jobs are kept for a while, then written to the archive, then forgotten."""

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from frenzy_scheduler.core.facts import TimerKind
from frenzy_scheduler.core.steps import timers
from frenzy_shared.clock import Clock
from frenzy_shared.domain.job import TERMINAL, JobRecord
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.keeper import Keeper
from frenzy_shared.state.port import Json, StateStore

log = logging.getLogger(__name__)

_BATCH: Final = 100
_MOST: Final = 2000  # forgotten in one look: the loop has other work


class Archive(Protocol):
    """Where forgotten jobs can be read."""

    async def append(self, job: Json, finished_ms: int) -> None:
        """Write a job down, durably; a job may come twice, the last line counts."""
        ...


@dataclass(kw_only=True)
class Retention:
    """Bounds what the store holds, by age and by number."""

    store: StateStore
    keeper: Keeper
    clock: Clock
    archive: Archive
    keep_s: float
    keep_jobs: int

    async def look(self) -> int:
        """Forget what has been kept for long enough; return how many jobs that were.

        Raises:
            Unavailable: the store is, or the archive's disk is full.
        """
        counts = await self.store.counts()
        excess = sum(counts.get(state, 0) for state in TERMINAL) - self.keep_jobs
        oldest_ms = self.clock.now_ms() - round(self.keep_s * 1000)
        forgotten = 0
        while forgotten < _MOST:
            batch = await self.keeper.oldest_finished(_BATCH)
            due = [
                record
                for number, record in enumerate(batch)
                if number < excess - forgotten or _finished_ms(record) < oldest_ms
            ]
            for record in due:
                await self._forget(record)
            forgotten += len(due)
            if len(due) < _BATCH:
                break
        if forgotten:
            log.info("archived and forgot %d finished jobs", forgotten)
        return forgotten

    async def _forget(self, record: JobRecord) -> None:
        plans = await self.store.plans(record.id)
        job = {
            "record": to_json(record),
            "spec": await self.store.spec(record.id),
            "plans": None if plans is None else to_json(plans),
            "timeline": await self.store.timeline(record.id),
        }
        await self.archive.append(job, _finished_ms(record))
        result = await self.keeper.forget(
            record.id, version=record.version, timers=timers(record, *TimerKind)
        )
        if not result.ok:  # a checkpoint counted just now, say: the next look sees it
            log.info("job %s stays: %s %s", record.id, result.status, result.detail)


def _finished_ms(record: JobRecord) -> int:
    return record.finished_ms or record.updated_ms
