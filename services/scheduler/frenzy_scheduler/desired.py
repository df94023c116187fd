"""What nodes must do, computed from the store: the reply to a heartbeat, and its fast copy."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from frenzy_scheduler.core.succession import as_successor, succeeding, unwanted
from frenzy_scheduler.documents import Documents
from frenzy_shared.bus.port import Bus
from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import PLACED, JobRecord, JobState, StopReason
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.errors import InvalidSpec, NotFound, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    DesiredAttempt,
    DesiredSet,
    HeldAttempt,
    Phase,
    RankAssignment,
)
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Desired:
    """Makes desired sets and pushes them. A push may get lost: heartbeats say the same."""

    store: StateStore
    bus: Bus
    documents: Documents
    grace_s: float
    fence_after_s: float  # what this control plane counts on, margin aside

    async def complete(
        self, node: NodeRecord, records: Iterable[JobRecord], held: Iterable[HeldAttempt]
    ) -> DesiredSet:
        """Return everything that a node must run or stop.

        ``records`` are the placed jobs. What the node holds beside them is looked up once more,
        because it may have been placed after they were read; only then is it told to stop.
        """
        attempts = [
            await self.attempt(record, attempt, node.id)
            for record in records
            for attempt in attempts_on(record, node.id)
        ]
        listed = {(one.job, one.attempt) for one in attempts}
        for other in held:
            over = other.phase is AttemptPhase.CLEAN
            if not over and (other.job, other.attempt) not in listed:
                attempts.append(await self._unlisted(other, node.id))
        return DesiredSet(node=node.id, epoch=node.epoch, attempts=tuple(attempts))

    async def push(self, record: JobRecord) -> None:
        """Tell every node of a placed job at once what to do about it."""
        pairs = [(attempt, node) for attempt, nodes in _where(record) for node in nodes]
        try:
            await asyncio.gather(*(self._push(record, *pair) for pair in pairs))
        except Unavailable as error:
            log.info("nodes will hear by heartbeat: %s", error.message)

    async def attempt(self, record: JobRecord, attempt: int, node: NodeId) -> DesiredAttempt:
        """Return one node's part of a job's attempt, or of its successor."""
        if attempt != record.attempt:
            return await self._successor(record, node)
        if record.state is JobState.STOPPING:
            return self._stop(record, record.reason)
        order = await self._start(record, node)
        phase = Phase.PREPARE if record.state is JobState.RESERVED else Phase.GO
        return order.model_copy(update={"phase": phase})

    async def _successor(self, record: JobRecord, node: NodeId) -> DesiredAttempt:
        """Return one node's part of getting the next attempt ready, or of giving it up."""
        successor = succeeding(record)
        stopping = record.state is JobState.STOPPING
        if successor is None or (stopping and unwanted(record)):
            return self._stop(as_successor(record), StopReason.SUPERSEDED)
        order = await self._start(as_successor(record), node)
        warm = set(successor.placement.nodes) <= set(successor.prepared)
        changes = {"warm": warm, "continues": record.shape, "resume_step": None}
        return order.model_copy(update=changes)

    def _stop(self, record: JobRecord, reason: str) -> DesiredAttempt:
        return DesiredAttempt(
            job=record.id,
            project=record.project,
            attempt=record.attempt,
            phase=Phase.STOP,
            reason=reason,
            grace_s=self.grace_s,
            traceparent=record.traceparent,
        )

    async def _start(self, record: JobRecord, node: NodeId) -> DesiredAttempt:
        spec, plan = await self._launch(record)
        ranks = _ranks(record, node)
        return DesiredAttempt(
            job=record.id,
            project=record.project,
            job_number=record.sequence,
            attempt=record.attempt,
            phase=Phase.PREPARE,
            grace_s=self.grace_s,
            fence_after_s=self.fence_after_s,
            world_size=len(record.placement.devices) if record.placement else 0,
            ranks=ranks,
            hosts_rank_zero=any(assignment.rank == 0 for assignment in ranks),
            rendezvous=record.rendezvous,
            spec=spec,
            plan=plan,
            resume_step=record.checkpoint_step if spec and spec.checkpoint.resume else None,
            traceparent=record.traceparent,
        )

    async def _launch(self, record: JobRecord) -> tuple[JobSpec | None, ResourcePlan | None]:
        """Return what to start. A node refuses to prepare without; one that runs needs it not."""
        try:
            return await self.documents.spec(record.id), await self.documents.plan(record)
        except (NotFound, InvalidSpec) as error:
            log.warning("job %s cannot be launched: %s", record.id, error.message)
            return None, None

    async def _push(self, record: JobRecord, attempt: int, name: NodeId) -> None:
        node = await self.store.node(name)
        if node is not None:
            attempts = (await self.attempt(record, attempt, name),)
            desired = DesiredSet(node=name, epoch=node.epoch, complete=False, attempts=attempts)
            await self.bus.emit(subjects.desired(name), desired.encode())

    async def _unlisted(self, held: HeldAttempt, node: NodeId) -> DesiredAttempt:
        record = await self.store.job(JobId(held.job))
        if record is not None and held.attempt in attempts_on(record, node):
            return await self.attempt(record, held.attempt, node)
        return DesiredAttempt(
            job=held.job,
            project=record.project if record else "unknown",
            attempt=held.attempt,
            phase=Phase.STOP,
            reason=record.reason if record and record.attempt == held.attempt else "Superseded",
            grace_s=self.grace_s,
        )


def attempts_on(record: JobRecord, node: NodeId) -> tuple[int, ...]:
    """Return the attempts of a job about which a node still has something to do: at most two."""
    return tuple(attempt for attempt, nodes in _where(record) if node in nodes)


def concerns(record: JobRecord, node: NodeId) -> bool:
    """Tell whether a node still has something to do about a job's present attempt."""
    return record.attempt in attempts_on(record, node)


def _where(record: JobRecord) -> Iterator[tuple[int, tuple[NodeId, ...]]]:
    """Yield the present attempt and the successor, each with the nodes that are not clean of it."""
    if record.state not in PLACED:
        return
    for one in (record, as_successor(record)) if record.successor else (record,):
        nodes = one.placement.nodes if one.placement is not None else ()
        yield one.attempt, tuple(node for node in nodes if node not in one.clean)


def _ranks(record: JobRecord, node: NodeId) -> tuple[RankAssignment, ...]:
    devices = record.placement.devices if record.placement else ()
    mine = [(rank, ref.device) for rank, ref in enumerate(devices) if ref.node == node]
    return tuple(
        RankAssignment(rank=rank, local_rank=local_rank, device=device)
        for local_rank, (rank, device) in enumerate(mine)
    )
