"""The scheduling cycle around the pure function: read, decide, claim, say why the rest waits."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from frenzy_scheduler.acting import Acted, Acting
from frenzy_scheduler.batches import batches
from frenzy_scheduler.core.decisions import Decision, Hold, Strategy
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.dependents import Dependents
from frenzy_scheduler.jobs import apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_scheduler.recorder import Recorder
from frenzy_scheduler.situation import Look, Situation
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobState
from frenzy_shared.state.port import Change, Json, StateStore
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_ROUNDS: Final = 4  # of reading and deciding anew after another writer was faster


@dataclass(kw_only=True)
class Scheduling:
    """Runs cycles while this replica leads."""

    store: StateStore
    clock: Clock
    ids: IdSource
    policy: Strategy
    look: Look
    acting: Acting
    dependents: Dependents
    leadership: Leadership
    metrics: Metrics
    telemetry: Telemetry
    recorder: Recorder
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
        """Decide once for everything; return whether a conflict calls for another round."""
        with self.telemetry.span("scheduler.cycle") as span:
            situation = await self.look.at_everything(ahead=self.recorder.looks_ahead)
            cancelled = await self.dependents.cancel_broken(
                situation.waiting, situation.dependencies
            )
            started = time.perf_counter()
            now_ms = self.clock.now_ms()
            decisions = situation.decide(self.policy, now_ms)
            self.metrics.cycled(time.perf_counter() - started)
            acted = await self.acting.carry_out(decisions, situation, span)
            if decisions:
                await self.recorder.note(situation.question(self.policy, now_ms), decisions)
            documents = _pending(decisions, situation, acted, self.clock.now_ms())
            documents = {job: doc for job, doc in documents.items() if job not in cancelled}
            self._written = {j: doc for j, doc in self._written.items() if j in documents}
            span.set_attributes({"jobs": len(situation.queue), "held": len(documents)})
        if not acted.conflict:
            await self._explain(documents, situation)
        return acted.conflict

    async def _explain(self, documents: Mapping[JobId, Json], situation: Situation) -> None:
        """Store why jobs wait, only where that changed."""
        self.metrics.waiting(
            (str(document["reason"]), situation.records[job].project)
            for job, document in documents.items()
        )
        changed = [(job, doc) for job, doc in documents.items() if self._written.get(job) != doc]
        for some in batches(changed, self.batch):
            versions = ((job, situation.records[job].version, doc) for job, doc in some)
            await asyncio.gather(*(self._write(*one) for one in versions))

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


def _pending(
    decisions: Sequence[Decision], situation: Situation, acted: Acted, now_ms: int
) -> dict[JobId, Json]:
    """Return the documents of all jobs that still wait; those that give devices back have none."""
    documents: dict[JobId, Json] = {
        job: {**asdict(why), "position": number}
        for number, (job, why) in enumerate(acted.awaiting.items(), 1)
    }
    for decision in decisions:
        if isinstance(decision, Hold):
            record = situation.records[decision.job.id]
            if record.state is JobState.QUEUED:
                position = len(acted.awaiting) + decision.position
                documents[record.id] = {**asdict(explain(decision, now_ms)), "position": position}
    return documents
