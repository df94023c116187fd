"""Carry out what a cycle decided: claim devices for the jobs that it placed."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from opentelemetry.trace import Span

from frenzy_scheduler.batches import batches
from frenzy_scheduler.changes import job_change
from frenzy_scheduler.core.decisions import Decision, Place
from frenzy_scheduler.core.lifecycle import reserve
from frenzy_scheduler.desired import Desired
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.jobs import apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_scheduler.tracing import span_context
from frenzy_shared import crashpoints
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.state.port import StateStore, Status
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_CONFLICTS: Final = frozenset({Status.TAKEN, Status.NODE_EPOCH})


@dataclass(kw_only=True)
class Acting:
    """Writes decisions into the store, each only if its job and the devices are as it saw them."""

    store: StateStore
    clock: Clock
    ids: IdSource
    documents: Documents
    desired: Desired
    leadership: Leadership
    metrics: Metrics
    telemetry: Telemetry
    batch: int

    async def carry_out(
        self, decisions: Sequence[Decision], records: Mapping[JobId, JobRecord], span: Span
    ) -> bool:
        """Act on every decision; return whether the cluster was not as the cycle saw it.

        ``records`` are the jobs as the cycle saw them, ``span`` is the cycle's.
        """
        places = [decision for decision in decisions if isinstance(decision, Place)]
        conflict = False
        for some in batches(places, self.batch):
            claims = (self._claim(records[place.job], place, span) for place in some)
            conflict |= any(await asyncio.gather(*claims))
        span.set_attributes({"placed": len(places), "conflict": conflict})
        return conflict

    async def _claim(self, record: JobRecord, place: Place, cycle_span: Span) -> bool:
        """Claim one gang whole; return whether the cluster was not as the snapshot said."""
        op = f"sched:{record.id}:{record.version}:{self.ids.new_id()}"
        with self.telemetry.span("scheduler.place", parent=record.traceparent, job=record.id):
            if (context := span_context(record.traceparent)) is not None:
                cycle_span.add_link(context)
            step = reserve(record, place.placement, await self.documents.rules(record))
            change = job_change(step, lease=self.leadership.proof, documents={"pending": None})
            crashpoints.reach("scheduler.before-claim")
            result = await apply(self.store, op, change)
            crashpoints.reach("scheduler.after-claim")
            if result.ok:
                placed = replace(step.after, version=result.version)
                self.metrics.placed(placed, self.clock.now_ms())
                self.metrics.moved(placed)
                log.info(
                    "job %s is placed: %s", record.id, placed.message, extra={"job": record.id}
                )
                await self.desired.push(placed)
                return False
        self.metrics.conflicted(result.status)
        log.info("claim for job %s refused: %s %s", record.id, result.status, result.detail)
        if lease_lost(result):
            self.leadership.lose()
        return result.status in _CONFLICTS
