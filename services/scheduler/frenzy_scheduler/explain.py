"""Answer why a job is where it is, from a fresh look at the queue and the cluster."""

from dataclasses import dataclass

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Strategy
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.placed import placed_jobs
from frenzy_scheduler.scheduling import queued_job
from frenzy_shared.clock import Clock
from frenzy_shared.domain.cluster import kinds_digest, summarize_kinds
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord, JobState, PendingReason
from frenzy_shared.messages.v1 import ExplainReply
from frenzy_shared.state.port import StateStore


@dataclass(kw_only=True)
class Explain:
    """Re-runs the scheduling function without acting on it."""

    store: StateStore
    clock: Clock
    policy: Strategy
    documents: Documents

    async def job(self, job: JobId) -> ExplainReply:
        """Return a job's state and the reason for it; ``error`` when there is no such job."""
        record = await self.store.job(job)
        if record is None:
            return ExplainReply(error=f"no job {job}")
        if record.state is JobState.QUEUED:
            return await self._queued(record)
        if record.state is JobState.SUBMITTED:
            why = record.message or "waiting for MARP to plan it"
            reason = record.reason or PendingReason.REPLANNING.value
            return ExplainReply(state=record.state, reason=reason, message=why)
        return ExplainReply(state=record.state, reason=record.reason, message=record.message)

    async def _queued(self, record: JobRecord) -> ExplainReply:
        queue = await self.store.jobs_in(frozenset({JobState.QUEUED}))
        cluster = await self.store.cluster()
        digest = kinds_digest(summarize_kinds(cluster.nodes))
        jobs = [await queued_job(self.documents, waiting, digest) for waiting in queue]
        placed = await placed_jobs(self.store, self.documents, self.policy)
        now_ms = self.clock.now_ms()
        for decision in cycle(jobs, Snapshot.of(cluster), now_ms, self.policy, placed):
            if isinstance(decision, Hold) and decision.job.id == record.id:
                why = explain(decision, now_ms)
                return ExplainReply(
                    state=record.state,
                    reason=why.reason,
                    message=why.message,
                    nearest=why.nearest,
                    position=decision.position,
                )
        return ExplainReply(state=record.state, message="devices are idle; it is being placed")
