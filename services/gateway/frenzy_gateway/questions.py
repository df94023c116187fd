"""Questions to other services over the bus. Silence is an answer: None."""

import logging
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from frenzy_shared.bus.port import Bus
from frenzy_shared.domain.ids import JobId
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.estimate import (
    DriftList,
    DriftRequest,
    EstimateReply,
    EstimateRequest,
)
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import (
    ExplainReply,
    ExplainRequest,
    PlanReply,
    PlanRequest,
    QueueReply,
    QueueRequest,
    ReconcileReply,
    ReconcileRequest,
    RecordReply,
    RecordRequest,
)
from frenzy_shared.telemetry import traceparent

log = logging.getLogger(__name__)

_RECONCILE_S: Final = 300.0

R = TypeVar("R", bound=Wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Asks with a time budget."""

    bus: Bus
    marp_timeout_s: float
    explain_timeout_s: float

    async def plans(self, spec: JobSpec) -> PlanReply | None:
        """Ask MARP how a job could run on the present cluster."""
        question = PlanRequest(spec=spec)
        return await self._ask(subjects.MARP_PLAN, question, PlanReply, self.marp_timeout_s)

    async def estimate(self, request: EstimateRequest) -> EstimateReply | None:
        """Ask MARP what one exact configuration takes."""
        return await self._ask(subjects.MARP_ESTIMATE, request, EstimateReply, self.marp_timeout_s)

    async def drifts(self) -> DriftList | None:
        """Ask MARP which predictions have lately left their bands."""
        return await self._ask(subjects.MARP_DRIFTS, DriftRequest(), DriftList, self.marp_timeout_s)

    async def explanation(self, job: JobId) -> ExplainReply | None:
        """Ask the scheduler why a job is where it is."""
        question = ExplainRequest(job=job)
        reply = await self._ask(
            subjects.SCHEDULER_EXPLAIN, question, ExplainReply, self.explain_timeout_s
        )
        return None if reply is None or reply.error else reply

    async def queue(self, project: str | None, limit: int) -> QueueReply:
        """Ask the scheduler who waits, and until when.

        Raises:
            Unavailable: no scheduler answers.
        """
        question = QueueRequest(project=project, limit=limit)
        reply = await self._ask(
            subjects.SCHEDULER_QUEUE, question, QueueReply, self.explain_timeout_s
        )
        if reply is None or reply.error:
            raise Unavailable(
                (reply.error if reply else "") or "the scheduler does not answer",
                suggestions=("is frenzy_scheduler running?",),
            )
        return reply

    async def recording(self, cycles: int) -> RecordReply:
        """Ask the leading scheduler for its last cycles.

        Raises:
            Unavailable: no scheduler leads.
        """
        reply = await self._ask(
            subjects.SCHEDULER_RECORD,
            RecordRequest(cycles=cycles),
            RecordReply,
            self.explain_timeout_s,
        )
        if reply is None:
            raise Unavailable("no scheduler leads", suggestions=("is frenzy_scheduler running?",))
        return reply

    async def reconciliation(
        self, *, apply: bool, dead: tuple[str, ...], by: str
    ) -> ReconcileReply:
        """Ask the leader what is wrong in the store; the whole event history is read for it.

        Raises:
            Unavailable: no scheduler leads, or it took too long.
        """
        question = ReconcileRequest(apply=apply, dead=dead, by=by)
        payload = await self.bus.request(
            subjects.SCHEDULER_RECONCILE, question.encode(), timeout_s=_RECONCILE_S
        )
        return ReconcileReply.decode(payload)

    async def _ask(self, subject: str, question: Wire, kind: type[R], timeout_s: float) -> R | None:
        if not self.bus.connected:
            return None  # known to be silent: the caller need not wait for the budget to pass
        headers = {"traceparent": traceparent()}
        try:
            payload = await self.bus.request(
                subject, question.encode(), timeout_s=timeout_s, headers=headers
            )
            return kind.decode(payload)
        except Unavailable as error:
            log.warning("no answer: %s", error.message)
        except ValidationError:
            log.exception("the answer of %s cannot be read", subject)
        return None
