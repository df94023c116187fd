"""Messages that any replica handles: evidence, training metrics, questions."""

import logging
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from frenzy_scheduler.core import facts
from frenzy_scheduler.core.steps import quarantine_token
from frenzy_scheduler.draining import Draining
from frenzy_scheduler.explain import Explain
from frenzy_scheduler.jobs import Jobs, apply
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.paces import Paces
from frenzy_scheduler.recorder import Recorder
from frenzy_shared import crashpoints
from frenzy_shared.bus.port import Message, Poison
from frenzy_shared.domain.cluster import owner_token
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages.v1 import (
    Evidence,
    EvidenceKind,
    ExplainReply,
    ExplainRequest,
    QueueReply,
    QueueRequest,
    RecordReply,
    RecordRequest,
    TelemetryBatch,
)
from frenzy_shared.state.port import Change, Release, StateStore
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Incoming:
    """Handlers of what nodes, trainers and people send."""

    store: StateStore
    jobs: Jobs
    explain: Explain
    draining: Draining
    paces: Paces
    recorder: Recorder
    leadership: Leadership
    telemetry: Telemetry

    async def evidence(self, message: Message) -> None:
        """Carry one piece of evidence into its job; a repetition changes nothing.

        Raises:
            Poison: it is no evidence.
            Unavailable: the store is; the bus delivers it again.
        """
        try:
            evidence = Evidence.decode(message.payload)
        except ValidationError as error:
            raise Poison(f"not evidence: {error}") from None
        fact = fact_of(evidence)
        if fact is None:
            return
        # Not the stream's number: a stream that was made again counts from 1, and the store would
        # take new evidence for old.
        op = f"evidence:{evidence.node}:{evidence.sequence}"
        parent = evidence.traceparent or message.headers.get("traceparent", "")
        with self.telemetry.span(
            f"scheduler.{evidence.kind}", parent=parent, job=evidence.job, node=evidence.node
        ):
            crashpoints.reach("controller.before-effect")
            changed = await self.jobs.learn(JobId(evidence.job), evidence.attempt, fact, op=op)
            crashpoints.reach("controller.after-effect")
            if evidence.kind is EvidenceKind.CLEAN and not changed:
                await self._lift(evidence, op)
            elif changed and _is_strike(evidence):
                await self.draining.refused(evidence)

    async def metrics(self, message: Message) -> None:
        """Keep training points of a job."""
        try:
            batch = TelemetryBatch.decode(message.payload)
        except ValidationError as error:
            log.warning("dropped training metrics on %s: %s", message.subject, error)
            return
        self.paces.note(batch)
        points: list[dict[str, Any]] = [
            point.model_dump(mode="json", exclude_none=True) for point in batch.points
        ]
        await self.store.append_series(JobId(batch.job), points)

    async def question(self, message: Message) -> bytes | None:
        """Answer why a job is where it is."""
        try:
            request = ExplainRequest.decode(message.payload)
        except ValidationError as error:
            return ExplainReply(error=f"not a question: {error}").encode()
        return (await self.explain.job(JobId(request.job))).encode()

    async def queue(self, message: Message) -> bytes | None:
        """Answer who waits, and until when."""
        try:
            request = QueueRequest.decode(message.payload)
        except ValidationError as error:
            return QueueReply(error=f"not a question: {error}").encode()
        return (await self.explain.queue(request)).encode()

    async def record(self, message: Message) -> bytes | None:
        """Answer with cycles if this replica leads: others have run none."""
        if not self.leadership.held:
            return None
        try:
            request = RecordRequest.decode(message.payload)
        except ValidationError as error:
            return RecordReply(error=f"not a question: {error}").encode()
        now = await self.explain.question()
        return (await self.recorder.recording(request.cycles, now)).encode()

    async def _lift(self, evidence: Evidence, op: str) -> None:
        """Free devices that were quarantined when the node was lost: it is back, and clean."""
        owner = quarantine_token(owner_token(evidence.job, evidence.attempt))
        prefix = f"{evidence.node}/"
        cluster = await self.store.cluster()
        releases = tuple(
            Release(node=NodeId(evidence.node), device=key.removeprefix(prefix), token=owner)
            for key, present in cluster.owners.items()
            if present == owner and key.startswith(prefix)
        )
        if releases:
            change = Change(entity=f"node:{evidence.node}", releases=releases)
            await apply(self.store, f"{op}:lift", change)
            self.jobs.on_change()


def _is_strike(evidence: Evidence) -> bool:
    """Tell whether a node is to blame for a refusal.

    Missing data would be so anywhere, and a gateway that gives no secrets gives none to others.
    """
    blameless = (StopReason.DATA_ERROR, StopReason.COMMUNICATION_ERROR)
    return evidence.kind is EvidenceKind.REFUSED and evidence.reason not in blameless


def fact_of(evidence: Evidence) -> facts.Evidence | None:  # noqa: PLR0911 - one return per kind
    """Return what a message says as the core takes it; None when it says nothing about a job."""
    node = evidence.node
    match evidence.kind:
        case EvidenceKind.PREPARED:
            return facts.Prepared(node=node, rendezvous=evidence.rendezvous)
        case EvidenceKind.WARM:
            return facts.Warm(node=node)
        case EvidenceKind.STARTED:
            return facts.Started(node=node)
        case EvidenceKind.EXITED:
            return facts.Exited(node=node, outcomes=evidence.outcomes)
        case EvidenceKind.CLEAN:
            return facts.Clean(node=node)
        case EvidenceKind.REFUSED:
            return facts.Refused(node=node, reason=evidence.reason, message=evidence.message)
        case EvidenceKind.PROGRESSED:
            return facts.Progressed(step=evidence.step or 0, loss=evidence.loss)
        case EvidenceKind.CHECKPOINTED:
            return facts.Checkpointed(step=evidence.step or 0)
        case EvidenceKind.INVENTORY:
            return None
