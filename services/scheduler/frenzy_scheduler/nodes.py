"""Nodes as the leader sees them: registration, heartbeats, reconciliation."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from frenzy_scheduler.core.facts import NodeGone
from frenzy_scheduler.core.liveness import Watch
from frenzy_scheduler.core.steps import quarantine_token
from frenzy_scheduler.core.succession import as_successor, succeeding
from frenzy_scheduler.desired import Desired, attempts_on, concerns
from frenzy_scheduler.jobs import Jobs, apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.safemode import SafeMode, ahead_of
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import (
    Device,
    NodeRecord,
    NodeState,
    dead_timer,
    fence_timer,
    owner_token,
)
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import PLACED, TERMINAL, JobRecord, JobState
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import DesiredSet, Heartbeat
from frenzy_shared.state.port import (
    Change,
    NodeRegistration,
    OutboxMessage,
    Release,
    Result,
    StateStore,
)

log = logging.getLogger(__name__)

_AWAY: Final = frozenset({NodeState.JOINING, NodeState.SUSPECT, NodeState.LOST})
_MOST_ASKED: Final = 64  # jobs in one heartbeat
_MEMORY_DRIFT: Final = 0.01  # of a device's memory: smaller changes are noise of other processes

Attempt = tuple[str, int]


@dataclass(kw_only=True)
class Nodes:
    """Answers heartbeats while this replica leads."""

    store: StateStore
    clock: Clock
    ids: IdSource
    jobs: Jobs
    desired: Desired
    leadership: Leadership
    watch: Watch
    safe_mode: SafeMode
    forgotten_after_s: float  # how long a node may not mention an attempt that it had prepared
    _missing: dict[tuple[str, Attempt], float] = field(default_factory=dict)

    async def answer(self, heartbeat: Heartbeat) -> DesiredSet:
        """Take in a node's inventory and return all that it must do."""
        if self.safe_mode.why:
            return await self._keep(heartbeat)
        if heartbeat.epoch == 0:
            return await self._register(heartbeat)
        node = await self.store.node(NodeId(heartbeat.node))
        gone_epoch = 0 if node else await self.safe_mode.keeper.gone_epoch()
        if problem := ahead_of(node, heartbeat, gone_epoch):
            await self.safe_mode.enter(problem)
            return await self._keep(heartbeat)
        if node is None or node.epoch != heartbeat.epoch or _other_devices(node, heartbeat):
            epoch = node.epoch if node else 0
            return DesiredSet(node=heartbeat.node, epoch=epoch, fenced=True)
        self.watch.hear(node.id, self.clock.monotonic())
        if node.state in _AWAY:
            await self._reconcile(node, heartbeat)
            await self._welcome(node)
        elif _devices_changed(node, heartbeat):
            devices = [to_json(device) for device in heartbeat.devices]
            await self._update(node, {"devices": devices}, "changed")
        await self._drain_stuck(node, heartbeat)
        records = await self.store.jobs_in(PLACED)
        placed = {record.id for record in records}
        if any(attempt.job not in placed for attempt in heartbeat.held):
            # It would be told to end them: not by a store that was put back a moment ago.
            await self.safe_mode.look(gained=False)
            if self.safe_mode.why:
                return await self._keep(heartbeat)
        await self._look_for_forgotten(node, heartbeat, records)
        desired = await self.desired.complete(node, records, heartbeat.attempts)
        return desired.model_copy(update={"over": await self._over(heartbeat.checkpoints)})

    async def _over(self, asked: tuple[str, ...]) -> dict[str, int]:
        """Say of jobs when they ended; one that has not can go on from its checkpoints."""
        known = {job: await self.store.job(JobId(job)) for job in asked[:_MOST_ASKED]}
        return {
            job: 0 if record is None else record.finished_ms or record.updated_ms
            for job, record in known.items()
            if record is None or record.state in TERMINAL
        }

    async def _keep(self, heartbeat: Heartbeat) -> DesiredSet:
        """Let a node go on with what it runs, and note it: the store is in SAFE MODE."""
        # Above every epoch that was ever given, which the store may no longer know.
        least = self.clock.now_ms() // 1000
        epoch = heartbeat.epoch or (await self._new_epoch(heartbeat, least)).epoch
        self.watch.hear(heartbeat.node, self.clock.monotonic())
        self.safe_mode.note(heartbeat, epoch)
        return DesiredSet(node=heartbeat.node, epoch=epoch, complete=False)

    async def _register(self, heartbeat: Heartbeat) -> DesiredSet:
        result = await self._new_epoch(heartbeat)
        node = NodeId(heartbeat.node)
        self.watch.hear(node, self.clock.monotonic())
        records = await self.store.jobs_in(PLACED)
        record = await self.store.node(node)
        if record is None or record.epoch != result.epoch:
            return DesiredSet(node=node, epoch=result.epoch, fenced=True)
        return await self.desired.complete(record, records, heartbeat.attempts)

    async def _new_epoch(self, heartbeat: Heartbeat, least: int = 0) -> Result:
        node = NodeId(heartbeat.node)
        registration = NodeRegistration(
            node=node,
            boot_id=heartbeat.boot_id,
            address=heartbeat.address,
            devices=heartbeat.devices,
            labels=heartbeat.labels,
            host_memory_bytes=heartbeat.host_memory_bytes,
            least_epoch=least,
            outbox=(node_event(node, "joined", f"{len(heartbeat.devices)} devices"),),
        )
        op = f"register:{node}:{self.ids.new_id()}"
        result = await self.store.register_node(op, registration)
        log.info("node %s registered", node, extra={"node": node, "epoch": result.epoch})
        return result

    async def _reconcile(self, node: NodeRecord, heartbeat: Heartbeat) -> None:
        """Compare every owner on the node with what it holds; free what nobody holds any more.

        What the node holds beside its jobs it is told to stop by the reply; its CLEAN frees that.
        """
        held = {owner_token(attempt.job, attempt.attempt) for attempt in heartbeat.held}
        cluster = await self.store.cluster()
        prefix = f"{node.id}/"
        for key, owner in cluster.owners.items():
            if not key.startswith(prefix) or owner == "":
                continue
            token = owner.removeprefix(quarantine_token(""))
            if token in held:
                continue
            device = key.removeprefix(prefix)
            if token != owner:
                await self._lift(node, device, owner)
            elif "#" in token and not token.startswith("!"):
                await self._release_leak(node, device, token)

    async def _lift(self, node: NodeRecord, device: str, owner: str) -> None:
        """Give a quarantined device back: the node is here and does not hold the attempt."""
        release = Release(node=node.id, device=device, token=owner)
        change = Change(entity=f"node:{node.id}", lease=self.leadership.proof, releases=(release,))
        await apply(self.store, f"lift:{node.id}:{device}:{self.ids.new_id()}", change)
        log.info("device %s/%s is usable again (was %s)", node.id, device, owner)

    async def _release_leak(self, node: NodeRecord, device: str, token: str) -> None:
        """Free a device whose attempt is over; an attempt that is not over keeps it."""
        job, _, attempt = token.rpartition("#")
        record = await self.store.job(JobId(job))
        if record is None or int(attempt) in attempts_on(record, node.id):
            return
        change = Change(
            entity=f"job:{job}",
            expect_version=record.version,
            lease=self.leadership.proof,
            releases=(Release(node=node.id, device=device, token=token),),
        )
        result = await apply(self.store, f"leak:{token}:{device}:{self.ids.new_id()}", change)
        log.warning("device %s/%s was left to %s: %s", node.id, device, token, result.status)

    async def _welcome(self, node: NodeRecord) -> None:
        """Let the node have work again, unless it was draining when it went away."""
        state = NodeState.DRAINING if node.drain else NodeState.UP
        patch: dict[str, object] = {"state": state, "reason": node.drain}
        timers = (fence_timer(node), dead_timer(node))
        await self._update(node, patch, "draining" if node.drain else "up", clear=timers)

    async def _drain_stuck(self, node: NodeRecord, heartbeat: Heartbeat) -> None:
        """Give no more work to a node with processes that SIGKILL does not end.

        Its driver or its disk hangs: what starts there next may hang too.
        """
        stuck = next((held.stuck for held in heartbeat.attempts if held.stuck), "")
        if not stuck or node.drain:
            return
        why = f"{stuck}: look at the machine, and restart it"
        patch: dict[str, object] = {"drain": why}
        if node.state is NodeState.UP:
            patch |= {"state": NodeState.DRAINING, "reason": why}
        change = Change(
            entity=f"node:{node.id}",
            expect_version=node.version,
            expect_epoch=node.epoch,
            lease=self.leadership.proof,
            patch=patch,
            outbox=(
                drain_decision(node.id, "draining", why),
                node_event(node.id, "draining", why),
            ),
        )
        result = await apply(self.store, f"stuck:{node.id}:{node.version}", change)
        log.warning("node %s is drained: %s (%s)", node.id, why, result.status)

    async def _update(
        self, node: NodeRecord, patch: dict[str, object], event: str, clear: tuple[str, ...] = ()
    ) -> None:
        change = Change(
            entity=f"node:{node.id}",
            expect_version=node.version,
            expect_epoch=node.epoch,
            lease=self.leadership.proof,
            patch=patch,
            clear_timers=clear,
            outbox=(node_event(node.id, event, str(patch.get("reason", ""))),),
        )
        result = await apply(self.store, f"node:{node.id}:{node.version}:{event}", change)
        log.info("node %s is %s: %s", node.id, event, result.status, extra={"node": node.id})
        if lease_lost(result):
            self.leadership.lose()

    async def _look_for_forgotten(
        self, node: NodeRecord, heartbeat: Heartbeat, records: tuple[JobRecord, ...]
    ) -> None:
        """End attempts that the node had prepared and has not mentioned for a while.

        For a while, because its evidence of how they ended may still be on the way.
        """
        now = self.clock.monotonic()
        mentioned = {(attempt.job, attempt.attempt) for attempt in heartbeat.attempts}
        missing = {
            (record.id, record.attempt)
            for record in _awaited(records)
            if concerns(record, node.id)
            and node.id in record.prepared
            and node.id not in record.exited
            and (record.id, record.attempt) not in mentioned
        }
        known = {k: t for k, t in self._missing.items() if k[0] != node.id or k[1] in missing}
        self._missing = known
        for job, attempt in sorted(missing):
            since = known.setdefault((node.id, (job, attempt)), now)
            if now - since >= self.forgotten_after_s:
                why = f"{node.id} no longer knows attempt {attempt}"
                op = f"forgotten:{node.id}:{node.epoch}:{job}:{attempt}"
                fact = NodeGone(node=node.id, why=why)
                await self.jobs.learn(JobId(job), attempt, fact, op=op, lease=self.leadership.proof)


def node_event(node: NodeId, kind: str, message: str) -> OutboxMessage:
    """Return the message that announces a change of a node."""
    data = {"message": message} if message else {}
    return OutboxMessage(subject=subjects.node_event(kind, node), type=kind, data=data)


def drain_decision(node: NodeId, kind: str, message: str) -> OutboxMessage:
    """Return the message that keeps a drain for longer than events are."""
    subject = subjects.decision("node", node)
    return OutboxMessage(subject=subject, type=kind, data={"message": message})


def _awaited(records: Iterable[JobRecord]) -> Iterator[JobRecord]:
    """Yield the attempts, and the successors as such, that nobody has told to stop."""
    for record in records:
        if record.state is not JobState.STOPPING:
            yield record
        if succeeding(record) is not None:
            yield replace(as_successor(record), exited=(), successor=None)


def _other_devices(node: NodeRecord, heartbeat: Heartbeat) -> bool:
    """Tell whether devices came or went, which needs a new registration."""
    return {device.id for device in node.devices} != {device.id for device in heartbeat.devices}


def _devices_changed(node: NodeRecord, heartbeat: Heartbeat) -> bool:
    before = {device.id: device for device in node.devices}
    return any(_differs(before[device.id], device) for device in heartbeat.devices)


def _differs(before: Device, after: Device) -> bool:
    drift = abs(before.memory_bytes - after.memory_bytes)
    same = (before.kind, before.problem) == (after.kind, after.problem)
    return not same or drift > _MEMORY_DRIFT * before.memory_bytes
