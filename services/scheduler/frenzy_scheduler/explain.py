"""Answer why a job is where it is, what would start it, and when it will start and end."""

import asyncio
import logging
from dataclasses import dataclass

from frenzy_scheduler.alternatives import Alternatives
from frenzy_scheduler.core.counterfactual import Relaxed, counterfactuals
from frenzy_scheduler.core.decisions import Hold, Strategy
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.question import Question
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.forecasting import Forecasting, Outlook
from frenzy_shared.domain.ids import JobId, ProjectName
from frenzy_shared.domain.job import PLACED, JobRecord, JobState, PendingReason, StopReason
from frenzy_shared.domain.placement import Unplaceable
from frenzy_shared.errors import InvalidSpec, NotFound
from frenzy_shared.messages.answers import QueueEntry, WouldStart
from frenzy_shared.messages.v1 import ExplainReply, QueueReply, QueueRequest
from frenzy_shared.state.port import StateStore
from frenzy_shared.times import moment

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Explain:
    """Re-runs the scheduling function without acting on it."""

    store: StateStore
    policy: Strategy
    documents: Documents
    forecasting: Forecasting
    alternatives: Alternatives

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
        reply = ExplainReply(state=record.state, reason=record.reason, message=record.message)
        if record.state not in PLACED:
            return reply
        outlook = await self.forecasting.outlook(record)
        return reply.model_copy(update={"eta": outlook.eta(job), "basis": outlook.basis})

    async def queue(self, request: QueueRequest) -> QueueReply:
        """Return who waits, in the order of the policy, with reasons and predicted times."""
        outlook = await self.forecasting.outlook()
        found = _waiting(outlook, self.policy)
        waiting = [(job, wait) for job, wait in found.items() if _asked_for(job, outlook, request)]
        return QueueReply(
            policy=self.policy.name,
            total=len(waiting),
            entries=tuple(_entry(job, wait, outlook) for job, wait in waiting[: request.limit]),
            basis=outlook.basis,
        )

    async def question(self) -> Question:
        """Return what a cycle would be asked now."""
        outlook = await self.forecasting.outlook()
        return outlook.situation.question(self.policy, outlook.now_ms)

    async def _queued(self, record: JobRecord) -> ExplainReply:
        outlook = await self.forecasting.outlook(record)
        wait = _waiting(outlook, self.policy).get(record.id)
        if wait is None:
            message = "devices are idle; it is being placed"
            return ExplainReply(state=record.state, message=message)
        why = wait.why(outlook.now_ms)
        stopped = f"; {record.message}" if record.reason == StopReason.PREEMPTED else ""
        question = outlook.situation.question(self.policy, outlook.now_ms)
        relaxed = await self._relaxed(record)
        found = await asyncio.to_thread(counterfactuals, question, record.id, relaxed)
        return ExplainReply(
            state=record.state,
            reason=why.reason,
            message=why.message + stopped,
            nearest=why.nearest,
            position=wait.position,
            would_start=tuple(
                WouldStart(what=one.what, text=one.text, plan=one.plan, after_s=one.after_s)
                for one in found
            ),
            eta=outlook.eta(record.id),
            basis=outlook.basis,
        )

    async def _relaxed(self, record: JobRecord) -> list[Relaxed]:
        try:
            spec = await self.documents.spec(record.id)
        except (NotFound, InvalidSpec) as error:
            log.warning("job %s: its pins are not known: %s", record.id, error.message)
            return []
        return await self.alternatives.of(spec)


@dataclass(frozen=True, slots=True)
class _Wait:
    """One waiting job: held by the cycle, or its devices are on their way back to it."""

    position: int
    cause: Hold | Unplaceable

    def why(self, now_ms: int) -> Unplaceable:
        return explain(self.cause, now_ms) if isinstance(self.cause, Hold) else self.cause


def _waiting(outlook: Outlook, policy: Strategy) -> dict[JobId, _Wait]:
    """Return who waits, next first; not jobs that are still giving their devices back."""
    records = outlook.situation.records
    decisions = outlook.situation.decide(policy, outlook.now_ms)
    awaiting = outlook.situation.awaiting(decisions)
    waits = {job: _Wait(number, why) for number, (job, why) in enumerate(awaiting.items(), 1)}
    for decision in decisions:
        if isinstance(decision, Hold) and records[decision.job.id].state is JobState.QUEUED:
            waits[decision.job.id] = _Wait(len(awaiting) + decision.position, decision)
    return waits


def _asked_for(job: JobId, outlook: Outlook, request: QueueRequest) -> bool:
    project = outlook.situation.records[job].project
    return request.project is None or project == ProjectName(request.project)


def _entry(job: JobId, wait: _Wait, outlook: Outlook) -> QueueEntry:
    record = outlook.situation.records[job]
    why = wait.why(outlook.now_ms)
    return QueueEntry(
        position=wait.position,
        job=record.id,
        name=record.name,
        project=record.project,
        priority=record.priority,
        reason=why.reason,
        message=why.message,
        submitted_at=moment(record.created_ms),
        eta=outlook.eta(record.id),
    )
