"""Make numbered evidence, and publish what the journal still holds until the bus has it."""

import logging
from collections.abc import Callable

from frenzy_orchestrator.adapters.journal import AttemptFolder, NodeJournal
from frenzy_shared import crashpoints
from frenzy_shared.bus.port import Bus
from frenzy_shared.domain.job import RankOutcome
from frenzy_shared.errors import StorageFull
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import DesiredAttempt, Evidence, EvidenceKind

log = logging.getLogger(__name__)


class EvidenceLedger:
    """The node's evidence: numbered here, kept in attempts' journals, published from there."""

    def __init__(self, node: str, journal: NodeJournal, now_ms: Callable[[], int]) -> None:
        """Continue the numbers of every earlier agent of this folder."""
        self._node = node
        self._journal = journal
        self._now_ms = now_ms

    @property
    def pending(self) -> int:
        """Return how much evidence the bus does not have yet."""
        return sum(len(folder.journal.pending) for folder in self._journal.attempts.values())

    def make(
        self,
        kind: EvidenceKind,
        order: DesiredAttempt,
        *,
        rendezvous: str = "",
        reason: str = "",
        message: str = "",
        outcomes: tuple[RankOutcome, ...] = (),
        step: int | None = None,
        loss: float | None = None,
    ) -> Evidence:
        """Return new evidence about an attempt; the epoch is filled in when it is sent."""
        return Evidence(
            kind=kind,
            node=self._node,
            epoch=0,
            sequence=self._journal.next_sequence(),
            time_ms=self._now_ms(),
            job=order.job,
            project=order.project,
            attempt=order.attempt,
            rendezvous=rendezvous,
            reason=reason,
            message=message,
            outcomes=outcomes,
            step=step,
            loss=loss,
            traceparent=order.traceparent,
        )

    async def publish_pending(self, bus: Bus, epoch: int) -> None:
        """Publish everything pending in order of its numbers.

        Raises:
            Unavailable: the rest will be tried again by the next call.
        """
        pending = [
            (entry.sequence, entry, folder)
            for folder in self._journal.attempts.values()
            for entry in folder.journal.pending
        ]
        for _, entry, folder in sorted(pending, key=lambda item: item[0]):
            await self.publish(bus, entry, epoch)
            crashpoints.reach("agent.after-publish")
            self._acknowledge(folder, entry)

    async def publish(self, bus: Bus, entry: Evidence, epoch: int) -> None:
        """Publish one piece of evidence under the agent's present epoch."""
        await bus.publish(
            subjects.evidence(self._node, entry.kind),
            entry.model_copy(update={"epoch": epoch}).encode(),
            message_id=f"{self._node}:{entry.sequence}",
        )

    def _acknowledge(self, folder: AttemptFolder, entry: Evidence) -> None:
        if folder.path.exists():
            try:
                folder.acknowledge(entry.sequence)
            except StorageFull as error:
                log.warning("%s", error.message)  # sent again after a restart: harmless
