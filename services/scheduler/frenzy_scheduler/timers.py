"""Timers that the store hands out when they are due."""

import logging
from dataclasses import dataclass

from frenzy_scheduler.core.facts import TimerDue, TimerKind
from frenzy_scheduler.draining import Draining
from frenzy_scheduler.jobs import Jobs, apply
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.silence import Silence
from frenzy_shared.clock import IdSource
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.state.port import Change, StateStore

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Timers:
    """Acts on due timers while this replica leads; the store repeats what was not cleared."""

    store: StateStore
    ids: IdSource
    jobs: Jobs
    silence: Silence
    draining: Draining
    leadership: Leadership

    async def look(self) -> None:
        """Handle everything that is due."""
        for due in await self.store.due():
            kind, _, rest = due.id.partition(":")
            name, _, number = rest.rpartition(":")
            if kind == "fence":
                await self.silence.fence(NodeId(name), int(number))
            elif kind == "dead":
                await self.silence.bury(NodeId(name), int(number))
            elif kind == "drain":
                await self.draining.end_jobs(NodeId(name))
            elif kind in set(TimerKind):
                await self._of_job(due.id, TimerKind(kind), JobId(name), int(number))
            else:
                log.error("timer %s is of no known kind", due.id)

    async def _of_job(self, timer: str, kind: TimerKind, job: JobId, attempt: int) -> None:
        lease = self.leadership.proof
        fact = TimerDue(kind=kind)
        if await self.jobs.learn(job, attempt, fact, op=f"timer:{timer}", lease=lease):
            if kind is TimerKind.STOP and (record := await self.store.job(job)) is not None:
                await self.jobs.desired.push(record)
            return
        if kind is TimerKind.BACKOFF:
            self.jobs.on_change()
        change = Change(entity=f"job:{job}", lease=lease, clear_timers=(timer,))
        await apply(self.store, f"timer:{timer}:clear:{self.ids.new_id()}", change)
