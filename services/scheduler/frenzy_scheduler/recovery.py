"""Put the store right in SAFE MODE: show what differs, and on an administrator's word repair it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from frenzy_scheduler.core.recovery import (
    JobRepair,
    Limits,
    NodeRepair,
    Repairs,
    repairs,
    timers_of,
)
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.history import Past, read_past, read_present, skip_published
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.nodes import node_event
from frenzy_scheduler.safemode import Mark, SafeMode
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import NodeRecord, NodeState, fence_timer
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.errors import FrenzyError, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import (
    Difference,
    ReconcileReply,
    ReconcileRequest,
    Reconciliation,
)
from frenzy_shared.state.keeper import JobRestore, Keeper, Leave, NodeRestore, Restore
from frenzy_shared.state.port import OutboxMessage, Result, StateStore, Timer

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHOWN: Final = 500  # differences in an answer
_BATCH: Final = 50  # records in one call: the store does nothing else meanwhile


@dataclass(kw_only=True)
class Recovery:
    """Answers administrators while this replica leads."""

    store: StateStore
    keeper: Keeper
    bus: Bus
    clock: Clock
    ids: IdSource
    documents: Documents
    leadership: Leadership
    safe_mode: SafeMode
    fence_after_s: float  # the nodes' limit with its margin
    forgotten_after_s: float  # how long finished jobs are kept

    async def answer(self, message: Message) -> bytes | None:
        """Answer a request if this replica leads."""
        if not self.leadership.held:
            return None
        try:
            request = ReconcileRequest.decode(message.payload)
            result = await self.reconcile(apply=request.apply)
        except ValidationError as error:
            return ReconcileReply(error=f"not a request: {error}").encode()
        except FrenzyError as error:
            return ReconcileReply(error=error.message).encode()
        return ReconcileReply(result=result).encode()

    async def reconcile(self, *, apply: bool) -> Reconciliation:
        """Return what differs; with ``apply`` put it right and leave SAFE MODE.

        Raises:
            Unavailable: the store or the bus is, or another replica leads now. Ask again.
        """
        if not self.safe_mode.why:
            return Reconciliation()
        past, present = await read_past(self.bus, self.store), await read_present(self.store)
        now_ms = self.clock.now_ms()
        found = repairs(
            past.witness(),
            present,
            (await self.store.cluster()).owners,
            self.safe_mode.inventories.values(),
            Limits(
                hold_until_ms=now_ms + round(self.fence_after_s * 1000),
                forgotten_before_ms=now_ms - round(self.forgotten_after_s * 1000),
            ),
        )
        shown = _describe(found, self.safe_mode.why)
        if not apply:
            return shown
        if found.silent:
            names = ", ".join(found.silent)
            why = f"{names} did not say yet what runs there: wait, or confirm that it is dead"
            return shown.model_copy(update={"refused": why})
        await self._apply(found, past)
        return shown.model_copy(update={"applied": True, "safe_mode": ""})

    async def _apply(self, found: Repairs, past: Past) -> None:
        here, lease = await self.keeper.history(), self.leadership.proof
        mark = past.mark or Mark(gen=here.gen, number=here.posted)
        posted = max(here.posted, mark.number)
        await skip_published(self.store, past.published)
        for jobs in _batches(found.jobs):
            restored = [_job(repair, past) for repair in jobs]
            restore = Restore(lease=lease, gen=mark.gen, posted=posted, jobs=restored)
            await self._restore(restore)
        nodes = [_node(repair) for repair in found.nodes]
        await self._restore(Restore(lease=lease, gen=mark.gen, posted=posted, nodes=nodes))
        leave = Leave(
            lease=lease,
            owners=found.owners,
            timers=await self._timers(found),
        )
        _check(await self.keeper.leave_safe_mode(f"leave:{self.ids.new_id()}", leave))
        log.warning("the store was put right: %d jobs, %d nodes", len(found.jobs), len(nodes))
        self.documents.forget()
        await self.safe_mode.look(gained=False)
        self.leadership.on_gained()  # nothing that was known before is assumed

    async def _restore(self, restore: Restore) -> None:
        _check(await self.keeper.restore(f"restore:{self.ids.new_id()}", restore))

    async def _timers(self, found: Repairs) -> tuple[Timer, ...]:
        timers = [
            Timer(id=fence_timer(repair.record), after_s=self.fence_after_s)
            for repair in found.nodes
            if repair.record.state is NodeState.LOST
        ]
        for repair in found.jobs:
            rules = await self.documents.rules(repair.record)
            timers += timers_of(repair.record, rules, self.clock.now_ms())
        return tuple(timers)


def _describe(found: Repairs, why: str) -> Reconciliation:
    differences = [
        *(_job_difference(repair) for repair in found.jobs),
        *(_node_difference(repair) for repair in found.nodes if _differs(repair)),
        *(
            Difference(
                entity=f"job:{held.job}",
                store=f"attempt {held.attempt} does not run on {held.node}",
                repair="the node ends it; the job does not start before",
            )
            for held in found.leftovers
        ),
    ]
    return Reconciliation(
        safe_mode=why,
        count=len(differences),
        differences=tuple(differences[:_SHOWN]),
        silent=found.silent,
    )


def _job_difference(repair: JobRepair) -> Difference:
    return Difference(
        entity=f"job:{repair.record.id}",
        store=_shown(repair.present),
        repair=f"becomes {_shown(repair.record)}",
    )


def _node_difference(repair: NodeRepair) -> Difference:
    before, after = repair.present, repair.record
    return Difference(
        entity=f"node:{after.id}",
        store="unknown" if before is None else _node_shown(before),
        repair=f"becomes {_node_shown(after)}",
    )


def _node_shown(node: NodeRecord) -> str:
    return f"{node.state}, epoch {node.epoch}{', drained' if node.drain else ''}"


def _differs(repair: NodeRepair) -> bool:
    """Tell whether a node's record says something wrong; that all must beat again is no news."""
    before, after = repair.present, repair.record
    return before is None or (before.epoch, before.drain) != (after.epoch, after.drain)


def _shown(record: JobRecord | None) -> str:
    if record is None:
        return "unknown"
    return f"{record.state}, version {record.version}, attempt {record.attempt}"


def _job(repair: JobRepair, past: Past) -> JobRestore:
    record = repair.record
    outbox: tuple[OutboxMessage, ...] = ()
    if repair.event:
        subject = subjects.job_event(record.project, repair.event, record.id)
        data = {"attempt": record.attempt, "message": record.message}
        outbox = (OutboxMessage(subject=subject, type=repair.event, data=data),)
    return JobRestore(
        record=to_json(record),
        spec=past.specs.get(record.id),
        timeline=past.timelines.get(record.id, ()),
        outbox=outbox,
    )


def _node(repair: NodeRepair) -> NodeRestore:
    record: NodeRecord = repair.record
    kind = "lost" if record.state is NodeState.LOST else "suspect"
    return NodeRestore(record=to_json(record), outbox=(node_event(record.id, kind, record.reason),))


def _check(result: Result) -> None:
    if not result.ok:
        raise Unavailable(f"the store refused: {result.status} {result.detail}; ask again")


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
