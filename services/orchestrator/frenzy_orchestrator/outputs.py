"""Everything that ranks say while they run: log lines, training reports, progress."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frenzy_orchestrator.adapters.evidence import EvidenceLedger
from frenzy_orchestrator.adapters.journal import AttemptFolder
from frenzy_orchestrator.adapters.logs import RankLog
from frenzy_orchestrator.adapters.reports import RankReports
from frenzy_orchestrator.core.exits import RankReport
from frenzy_orchestrator.core.reports import Checkpoint, Step
from frenzy_shared.bus.port import Bus
from frenzy_shared.clock import Clock
from frenzy_shared.errors import StorageFull, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import EvidenceKind, TelemetryBatch, TrainingPoint
from frenzy_shared.runtime import wait_any

log = logging.getLogger(__name__)

_BATCH_S: Final = 0.25
_RETRY_S: Final = 1.0
_PROGRESS_S: Final = 10.0
_REPORTING_RANK: Final = 0  # speaks for the job: progress and checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTools:
    """What output goes through. ``quota_bytes`` is per rank; ``changed`` wakes the publisher."""

    node: str
    bus: Bus
    clock: Clock
    ledger: EvidenceLedger
    quota_bytes: int
    changed: asyncio.Event


class Outputs:
    """The outputs of one attempt's ranks on this node."""

    def __init__(self, folder: AttemptFolder, tools: OutputTools) -> None:
        """Continue where an earlier agent stopped."""
        order = folder.journal.order
        self._folder = folder
        self._tools = tools
        self._progressed_at: float | None = None
        self._devices = {entry.rank: entry.device for entry in order.ranks}
        self._reports = {rank: RankReports(folder.rank(rank)) for rank in self._devices}
        self._logs = {
            rank: RankLog(
                folder=folder.rank(rank),
                project=order.project,
                job=order.job,
                attempt=order.attempt,
                rank=rank,
                node=tools.node,
                quota_bytes=tools.quota_bytes,
                now_ms=tools.clock.now_ms,
            )
            for rank in self._devices
        }

    @property
    def reports(self) -> Mapping[int, RankReport]:
        """Return what each rank has said about itself."""
        return {rank: reports.report for rank, reports in self._reports.items()}

    @property
    def device_bytes(self) -> Mapping[str, int]:
        """Return the peak that each device's rank last reported."""
        return {
            self._devices[rank]: report.peak_allocated_bytes
            for rank, report in self.reports.items()
            if report.peak_allocated_bytes is not None
        }

    @property
    def warm(self) -> bool:
        """Tell whether every rank has said that it waits for the word to train."""
        return all(report.warm for report in self.reports.values())

    @property
    def over_quota(self) -> bool:
        """Tell whether a rank has written more than it may."""
        return any(rank_log.over_quota for rank_log in self._logs.values())

    async def ship_until(self, ended: asyncio.Event) -> None:
        """Ship what comes, and after ``ended`` everything that is left; then return.

        A bus or a disk that is not available only delays: nothing is skipped.
        """
        while True:
            at_end = ended.is_set()
            try:
                busy = await self._round(at_end=at_end)
            except (Unavailable, OSError) as error:
                log.warning("output of %s waits: %s", self._folder.path.name, error)
                await asyncio.sleep(_RETRY_S)
                continue
            if at_end and not busy:
                for rank_log in self._logs.values():
                    rank_log.trim()
                return
            # Even a rank that writes without pause must leave time for heartbeats.
            await (asyncio.sleep(0) if busy else wait_any(_BATCH_S, ended))

    async def _round(self, *, at_end: bool) -> bool:
        """Ship one piece of everything; tell whether there may be more at once."""
        busy = False
        for rank, reports in self._reports.items():
            busy |= await self._tell_reports(rank, reports, at_end=at_end)
        for rank_log in self._logs.values():
            busy |= await rank_log.ship(self._tools.bus, at_end=at_end)
        self._tell_life()
        return busy

    async def _tell_reports(self, rank: int, reports: RankReports, *, at_end: bool) -> bool:
        told, more = reports.read(at_end=at_end)
        steps = [entry for entry in told if isinstance(entry, Step)]
        if steps:
            with contextlib.suppress(Unavailable):  # curves may have holes; evidence may not
                await self._emit(rank, steps)
        if rank == _REPORTING_RANK:
            checkpoints = [entry for entry in told if isinstance(entry, Checkpoint)]
            try:
                self._tell_checkpoint(checkpoints)
                self._tell_progress(steps)
            except StorageFull:
                reports.rewind()
                raise
        reports.save()
        return more

    async def _emit(self, rank: int, steps: list[Step]) -> None:
        order = self._folder.journal.order
        points = tuple(
            TrainingPoint(
                rank=rank,
                attempt=order.attempt,
                step=step.step,
                time_ms=step.time_ms or self._tools.clock.now_ms(),
                loss=step.loss,
                learning_rate=step.learning_rate,
                tokens_per_second=step.tokens_per_second,
                step_seconds=step.step_seconds,
                peak_allocated_bytes=step.peak_allocated_bytes,
                peak_reserved_bytes=step.peak_reserved_bytes,
            )
            for step in steps
        )
        batch = TelemetryBatch(job=order.job, project=order.project, points=points)
        await self._tools.bus.emit(subjects.telemetry(order.project, order.job), batch.encode())

    def _tell_checkpoint(self, checkpoints: list[Checkpoint]) -> None:
        if checkpoints:
            self._record(EvidenceKind.CHECKPOINTED, checkpoints[-1].step, None)

    def _tell_progress(self, steps: list[Step]) -> None:
        now = self._tools.clock.monotonic()
        due = self._progressed_at is None or now - self._progressed_at >= _PROGRESS_S
        if steps and due:
            self._record(EvidenceKind.PROGRESSED, steps[-1].step, steps[-1].loss)
            self._progressed_at = now

    def _tell_life(self) -> None:
        """Let a script that makes no reports show by its first output that it has begun."""
        spec = self._folder.journal.order.spec
        first = self._logs.get(_REPORTING_RANK)
        silent = self._progressed_at is None and first is not None and first.lines > 0
        if silent and spec is not None and spec.entrypoint is not None:
            self._record(EvidenceKind.PROGRESSED, 0, None)
            self._progressed_at = self._tools.clock.monotonic() - _PROGRESS_S

    def _record(self, kind: EvidenceKind, step: int, loss: float | None) -> None:
        order = self._folder.journal.order
        self._folder.record(self._tools.ledger.make(kind, order, step=step, loss=loss))
        self._tools.changed.set()
