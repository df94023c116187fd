"""The scheduling cycle around the pure function: read, decide, claim, say why the rest waits."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from frenzy_scheduler.acting import Acting
from frenzy_scheduler.batches import batches
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Decision, Hold, QueuedJob, Strategy
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.jobs import apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_scheduler.placed import placed_jobs
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import kinds_digest, summarize_kinds
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.state.port import Change, Json, StateStore
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_QUEUED: Final = frozenset({JobState.QUEUED})
_ROUNDS: Final = 4  # of reading and deciding anew after another writer was faster


@dataclass(kw_only=True)
class Scheduling:
    """Runs cycles while this replica leads."""

    store: StateStore
    clock: Clock
    ids: IdSource
    policy: Strategy
    documents: Documents
    acting: Acting
    leadership: Leadership
    metrics: Metrics
    telemetry: Telemetry
    batch: int
    _written: dict[JobId, Json] = field(default_factory=dict)  # pending documents in the store

    async def run(self) -> None:
        """Place what can be placed now; explain what cannot."""
        for _ in range(_ROUNDS):
            if not self.leadership.held or not await self._round():
                return

    def forget(self) -> None:
        """Drop what another leader may have changed since."""
        self._written.clear()

    async def _round(self) -> bool:
        """Decide once for the whole queue; return whether a conflict calls for another round."""
        queue = await self.store.jobs_in(_QUEUED)
        if not queue:
            self._written.clear()
            self.metrics.waiting(())
            return False
        records = {record.id: record for record in queue}
        with self.telemetry.span("scheduler.cycle", jobs=len(queue)) as span:
            decisions = await self._decide(queue)
            conflict = await self.acting.carry_out(decisions, records, span)
            holds = [decision for decision in decisions if isinstance(decision, Hold)]
            waiting = {hold.job.id for hold in holds}  # a claim clears the document of its job
            self._written = {job: doc for job, doc in self._written.items() if job in waiting}
            span.set_attribute("held", len(holds))
        if not conflict:
            await self._explain(holds)
        return conflict

    async def _decide(self, queue: Sequence[JobRecord]) -> list[Decision]:
        cluster = await self.store.cluster()
        digest = kinds_digest(summarize_kinds(cluster.nodes))
        jobs: list[QueuedJob] = []
        for some in batches(queue, self.batch):
            jobs += await asyncio.gather(*(queued_job(self.documents, r, digest) for r in some))
        placed = await placed_jobs(self.store, self.documents, self.policy)
        started = time.perf_counter()
        decisions = cycle(jobs, Snapshot.of(cluster), self.clock.now_ms(), self.policy, placed)
        self.metrics.cycled(time.perf_counter() - started)
        return decisions

    async def _explain(self, holds: Sequence[Hold]) -> None:
        """Store why jobs wait, only where that changed."""
        now_ms = self.clock.now_ms()
        waiting = {hold.job.id: pending_document(hold, now_ms) for hold in holds}
        self.metrics.waiting(str(document["reason"]) for document in waiting.values())
        versions = {hold.job.id: hold.job.version for hold in holds}
        changed = [(job, doc) for job, doc in waiting.items() if self._written.get(job) != doc]
        for some in batches(changed, self.batch):
            await asyncio.gather(*(self._write(job, versions[job], doc) for job, doc in some))

    async def _write(self, job: JobId, version: int, document: Json) -> None:
        change = Change(
            entity=f"job:{job}",
            expect_version=version,
            lease=self.leadership.proof,
            documents={"pending": document},
        )
        result = await apply(self.store, f"pending:{job}:{version}:{self.ids.new_id()}", change)
        if result.ok:
            self._written[job] = document
        elif lease_lost(result):
            self.leadership.lose()


async def queued_job(documents: Documents, record: JobRecord, digest: str) -> QueuedJob:
    """Return a queued record as the core takes it; ``digest`` is of the cluster's kinds."""
    plans = await documents.plans(record, digest)
    return QueuedJob(
        id=record.id,
        sequence=record.sequence,
        version=record.version,
        plans=plans.plans,
        refused=plans.refused,
        not_before_ms=record.not_before_ms,
        message=record.message or plans.message,
    )


def pending_document(hold: Hold, now_ms: int) -> Json:
    """Return the side document that says why a job waits."""
    return {**asdict(explain(hold, now_ms)), "position": hold.position}
