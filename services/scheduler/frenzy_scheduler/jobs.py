"""Carry facts into jobs' records: read, let the core decide, write, again on conflict."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from frenzy_scheduler.changes import Lease, job_change
from frenzy_scheduler.core.facts import Fact
from frenzy_scheduler.core.lifecycle import react, settle
from frenzy_scheduler.core.steps import Step
from frenzy_scheduler.desired import Desired
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.metrics import Metrics
from frenzy_shared import crashpoints
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.errors import Unavailable
from frenzy_shared.state.port import Change, Result, StateStore, Status

log = logging.getLogger(__name__)

_TRIES: Final = 8  # of one change against others' changes, and of one call against a lost reply


@dataclass(kw_only=True)
class Jobs:
    """The only writer of placed jobs in this service."""

    store: StateStore
    clock: Clock
    documents: Documents
    desired: Desired
    metrics: Metrics
    on_change: Callable[[], None]  # capacity or the queue may have changed

    async def learn(
        self, job: JobId, attempt: int, fact: Fact, *, op: str, lease: Lease | None = None
    ) -> bool:
        """Record a fact about an attempt and follow every arrow that it opens.

        Returns whether the fact changed anything; old and repeated facts do not.

        Raises:
            Unavailable: the store is; nothing is lost, bring the fact again.
        """
        for _ in range(_TRIES):
            record = await self.store.job(job)
            if record is None:
                log.warning("a fact about job %s, which is unknown: %s", job, fact)
                return False
            rules = await self.documents.rules(record)
            step = react(record, attempt, fact, rules, self.clock.now_ms())
            if step is None:
                await self.settle(record, op=op, lease=lease)
                return False
            result = await apply(
                self.store, f"{op}:{record.version}", job_change(step, lease=lease)
            )
            if result.ok:
                crashpoints.reach("controller.between-arrows")
                await self.settle(await self._done(step, result), op=op, lease=lease)
                return True
            log.info("job %s changed meanwhile: %s %s", job, result.status, result.detail)
        raise Unavailable(f"job {job} changed {_TRIES} times while a fact was recorded")

    async def settle(self, record: JobRecord, *, op: str, lease: Lease | None = None) -> JobRecord:
        """Follow the arrows that a record's own facts call for; return where it ends.

        A conflict ends the walk: whoever changed the job settles it.
        """
        rules = await self.documents.rules(record)
        while (step := settle(record, rules, self.clock.now_ms())) is not None:
            result = await apply(
                self.store, f"{op}:{record.version}", job_change(step, lease=lease)
            )
            if not result.ok:
                log.info("job %s not settled: %s %s", record.id, result.status, result.detail)
                break
            record = await self._done(step, result)
        return record

    async def _done(self, step: Step, result: Result) -> JobRecord:
        record = replace(step.after, version=result.version)
        self.metrics.trained(step.before, record)
        if step.moves:
            self.metrics.moved(record)
            log.info(
                "job %s is %s: %s",
                record.id,
                record.state,
                record.message,
                extra={"job": record.id, "attempt": record.attempt, "reason": record.reason},
            )
        if step.moves or step.before.successor != step.after.successor:
            await self.desired.push(record)
        if step.moves or step.releases:
            self.on_change()
        return record


async def apply(store: StateStore, op: str, change: Change) -> Result:
    """Apply a change; when the reply is lost, ask again under the same operation id.

    Raises:
        Unavailable: the store stays unreachable; the outcome is unknown.
    """
    for left in reversed(range(3)):
        try:
            return await store.apply(op, change)
        except Unavailable:
            if not left:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def lease_lost(result: Result) -> bool:
    """Tell whether a change was refused because another replica leads now."""
    return result.status is Status.LEASE
