"""Answer why a job is where it is, from a fresh look at the queue and the cluster."""

from dataclasses import dataclass

from frenzy_scheduler.core.decisions import Hold, Strategy
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.situation import Look
from frenzy_shared.clock import Clock
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
    look: Look

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
        now_ms = self.clock.now_ms()
        situation = await self.look.at_everything()
        for decision in situation.decide(self.policy, now_ms):
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
