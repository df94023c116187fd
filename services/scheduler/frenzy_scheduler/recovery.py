"""Put the store right in SAFE MODE: show what differs, and on an administrator's word repair it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from frenzy_scheduler.core.liveness import Watch
from frenzy_scheduler.core.recovery import (
    Given,
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
from frenzy_shared.auth import ALL_PROJECTS
from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import (
    NodeRecord,
    NodeState,
    dead_timer,
    drain_timer,
    fence_timer,
)
from frenzy_shared.domain.ids import NodeId
from frenzy_shared.domain.job import PLACED, JobRecord
from frenzy_shared.errors import FrenzyError, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import (
    Difference,
    ReconcileReply,
    ReconcileRequest,
    Reconciliation,
)
from frenzy_shared.state.keeper import Decision, JobRestore, Keeper, Leave, NodeRestore, Restore
from frenzy_shared.state.port import OutboxMessage, Result, StateStore, Timer

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHOWN: Final = 500  # differences in an answer
_AT_ONCE_S: Final = 0.001
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
    watch: Watch
    fence_after_s: float  # the nodes' limit with its margin
    forgotten_after_s: float  # how long finished jobs are kept

    async def answer(self, message: Message) -> bytes | None:
        """Answer a request if this replica leads."""
        if not self.leadership.held:
            return None
        try:
            request = ReconcileRequest.decode(message.payload)
            dead = frozenset(NodeId(name) for name in request.dead)
            given = Given(dead=dead, by=request.by or "an administrator")
            result = await self.reconcile(apply=request.apply, given=given)
        except ValidationError as error:
            return ReconcileReply(error=f"not a request: {error}").encode()
        except FrenzyError as error:
            return ReconcileReply(error=error.message).encode()
        return ReconcileReply(result=result).encode()

    async def reconcile(self, *, apply: bool, given: Given) -> Reconciliation:
        """Return what differs; with ``apply`` put it right and leave SAFE MODE.

        A node is taken for dead on an administrator's word, and only after this leader has not
        heard from it for as long as makes a node SUSPECT.

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
            given=given,
        )
        decisions = past.decisions_after((await self.keeper.history()).decisions)
        shown = _describe(found, decisions, self.safe_mode.why)
        if why := self._disbelieved(given, found) or (_still_silent(found) if apply else ""):
            return shown.model_copy(update={"refused": why})
        if not apply:
            return shown
        await self._apply(found, past, given)
        return shown.model_copy(update={"applied": True, "safe_mode": ""})

    def _disbelieved(self, given: Given, found: Repairs) -> str:
        """Say which node cannot be taken for dead, and why; "" when all can."""
        now = self.clock.monotonic()
        known = {repair.record.id for repair in found.nodes}
        for name in sorted(given.dead):
            if name not in known:
                return f"no node is called {name}: see frenzy nodes"
            silent_s = self.watch.silent_s(name, now)
            if silent_s < self.watch.suspect_after_s:
                left_s = self.watch.suspect_after_s - silent_s
                return (
                    f"{name} may be alive: this leader has missed it for {silent_s:.0f} s only; "
                    f"ask again in {left_s:.0f} s"
                )
        return ""

    async def _apply(self, found: Repairs, past: Past, given: Given) -> None:
        here, lease = await self.keeper.history(), self.leadership.proof
        mark = past.mark or Mark(gen=here.gen, number=here.posted)
        posted = max(here.posted, mark.number)
        await skip_published(self.store, past.published)
        for jobs in _batches(found.jobs):
            restored = [await self._job(repair, past) for repair in jobs]
            restore = Restore(lease=lease, gen=mark.gen, posted=posted, jobs=restored)
            await self._restore(restore)
        nodes = [_node(repair) for repair in found.nodes]
        await self._restore(Restore(lease=lease, gen=mark.gen, posted=posted, nodes=nodes))
        for decisions in _batches(past.decisions_after(here.decisions)):
            restore = Restore(lease=lease, gen=mark.gen, posted=posted, decisions=decisions)
            await self._restore(restore)
        leave = Leave(
            lease=lease,
            owners=found.owners,
            timers=await self._timers(found, given),
        )
        _check(await self.keeper.leave_safe_mode(f"leave:{self.ids.new_id()}", leave))
        log.warning("the store was put right: %d jobs, %d nodes", len(found.jobs), len(nodes))
        self.documents.forget()
        await self.safe_mode.leave()
        self.leadership.on_gained()  # nothing that was known before is assumed

    async def _job(self, repair: JobRepair, past: Past) -> JobRestore:
        """Return a job as it was. What it runs with comes back; a waiting one is planned again."""
        record = repair.record
        outbox: tuple[OutboxMessage, ...] = ()
        if repair.event:
            subject = subjects.job_event(record.project, repair.event, record.id)
            data = {"attempt": record.attempt, "message": record.message}
            outbox = (OutboxMessage(subject=subject, type=repair.event, data=data),)
        plans = past.plans_of(record) if record.state in PLACED else None
        known = await self.store.plans(record.id) if plans else None
        if plans and known and plans.plans[0].id in {plan.id for plan in known.plans}:
            plans = None  # with the others that the job could run with
        return JobRestore(
            record=to_json(record),
            spec=past.specs.get(record.id),
            plans=None if plans is None else to_json(plans),
            timeline=past.timelines.get(record.id, ()),
            outbox=outbox,
        )

    async def _restore(self, restore: Restore) -> None:
        _check(await self.keeper.restore(f"restore:{self.ids.new_id()}", restore))

    async def _timers(self, found: Repairs, given: Given) -> tuple[Timer, ...]:
        timers = [
            Timer(id=dead_timer(repair.record), after_s=_AT_ONCE_S)
            if repair.record.id in given.dead
            else Timer(id=fence_timer(repair.record), after_s=self.fence_after_s)
            for repair in found.nodes
            if repair.record.state is NodeState.LOST
        ]
        now_ms = self.clock.now_ms()
        timers += [
            Timer(
                id=drain_timer(repair.record.id),
                after_s=max((repair.record.drain_by_ms - now_ms) / 1000, _AT_ONCE_S),
            )
            for repair in found.nodes
            if repair.record.drain and repair.record.drain_by_ms
        ]
        for repair in found.jobs:
            rules = await self.documents.rules(repair.record)
            timers += timers_of(repair.record, rules, now_ms)
        return tuple(timers)


def _still_silent(found: Repairs) -> str:
    if not found.silent:
        return ""
    dead = " ".join(f"--dead {name}" for name in found.silent)
    return (
        f"{', '.join(found.silent)} did not say yet what runs there: wait, "
        f"or if switched off: frenzy admin reconcile --apply {dead}"
    )


def _describe(found: Repairs, decisions: Sequence[Decision], why: str) -> Reconciliation:
    differences = [
        *(_decision_difference(decision) for decision in decisions),
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


def _decision_difference(decision: Decision) -> Difference:
    stored = decision.stored
    if decision.kind == "project":
        repair = "quotas and weight become what was decided last"
    elif stored is None:
        repair = "is revoked"
    else:
        scope = stored["project"]
        where = "all projects" if scope == ALL_PROJECTS else f"project {scope}"
        repair = f"becomes valid: {stored['name']}, {stored['role']} of {where}"
    return Difference(entity=f"{decision.kind}:{decision.id}", store="unknown", repair=repair)


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
    if before is None or (before.epoch, before.drain) != (after.epoch, after.drain):
        return True
    return after.state is NodeState.LOST and before.state is not NodeState.LOST


def _shown(record: JobRecord | None) -> str:
    if record is None:
        return "unknown"
    return f"{record.state}, version {record.version}, attempt {record.attempt}"


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
