"""Nodes that fall silent: suspect, lost, and what that means for their jobs."""

import logging
from dataclasses import dataclass, field, replace

from frenzy_scheduler.core.facts import NodeFenced, NodeGone
from frenzy_scheduler.core.liveness import Judgement, Verdict, Watch
from frenzy_scheduler.core.steps import quarantine_token
from frenzy_scheduler.desired import attempts_on
from frenzy_scheduler.jobs import Jobs, apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_scheduler.nodes import node_event
from frenzy_shared.bus.port import Bus
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import NodeRecord, NodeState, fence_timer
from frenzy_shared.domain.ids import NodeId
from frenzy_shared.domain.job import PLACED
from frenzy_shared.state.port import Change, Release, StateStore, Timer

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Silence:
    """Judges nodes while this replica leads.

    A lost node's jobs stop at once, but nothing of theirs may start elsewhere before the node's
    own lease has surely run out: ``fence_after_s`` of silence, counted from its last heartbeat
    or from when this replica began to listen, whichever is later.
    """

    store: StateStore
    bus: Bus
    clock: Clock
    ids: IdSource
    jobs: Jobs
    leadership: Leadership
    metrics: Metrics
    watch: Watch
    fence_after_s: float  # the nodes' limit with its margin
    _withheld: tuple[str, ...] = field(default=())

    async def look(self) -> None:
        """Judge all nodes once."""
        now = self.clock.monotonic()
        if not self.bus.connected:
            self.watch.restart(now)
            return
        cluster = await self.store.cluster()
        self.metrics.saw(cluster)
        judged = self.watch.judge(cluster.nodes, now)
        if judged.withheld and judged.withheld != self._withheld:
            log.error("most nodes fell silent; waiting: %s", ", ".join(judged.withheld))
        self._withheld = judged.withheld
        for verdict in judged.verdicts:
            await self._declare(verdict)
        for node in cluster.nodes:
            if node.state is NodeState.LOST:
                await self._stop_jobs(node)

    def listen(self) -> None:
        """Judge nobody, but go on to know for how long each node was surely silent."""
        now = self.clock.monotonic()
        if self.bus.connected:
            self.watch.attend(now)
        else:
            self.watch.restart(now)

    async def fence(self, name: NodeId, epoch: int) -> None:
        """Give up a lost node's devices, now that its ranks are surely dead; clear the timer."""
        await self._give_up(name, epoch, f"fence:{name}:{epoch}", confirmed=False)

    async def bury(self, name: NodeId, epoch: int) -> None:
        """Do the same at once, and lift its quarantines: an operator says that it is dead."""
        await self._give_up(name, epoch, f"dead:{name}:{epoch}", confirmed=True)

    async def _give_up(self, name: NodeId, epoch: int, timer: str, *, confirmed: bool) -> None:
        node = await self.store.node(name)
        releases: tuple[Release, ...] = ()
        if node is not None and node.state is NodeState.LOST and node.epoch == epoch:
            for record in await self.store.jobs_in(PLACED):
                for attempt in attempts_on(record, name):
                    fact = NodeFenced(node=name, confirmed=confirmed)
                    op, lease = f"{timer}:{record.id}:{attempt}", self.leadership.proof
                    await self.jobs.learn(record.id, attempt, fact, op=op, lease=lease)
            releases = await self._quarantined(name) if confirmed else ()
        change = Change(
            entity=f"node:{name}",
            lease=self.leadership.proof,
            releases=releases,
            clear_timers=(timer,),
        )
        await apply(self.store, f"timer:{timer}:done:{self.ids.new_id()}", change)

    async def _quarantined(self, name: NodeId) -> tuple[Release, ...]:
        """Return what frees the devices that wait for proof that nothing runs on them."""
        owners = (await self.store.cluster()).owners
        prefix, lost = f"{name}/", quarantine_token("")
        return tuple(
            Release(node=name, device=key.removeprefix(prefix), token=owner)
            for key, owner in owners.items()
            if key.startswith(prefix) and owner.startswith(lost)
        )

    async def _declare(self, verdict: Verdict) -> None:
        node, silent_s = verdict.node, verdict.silent_s
        lost = verdict.judgement is Judgement.LOST
        state = NodeState.LOST if lost else NodeState.SUSPECT
        reason = f"no heartbeat for {silent_s:.0f} s"
        left_s = max(self.fence_after_s - silent_s, 0.001)
        change = Change(
            entity=f"node:{node.id}",
            expect_version=node.version,
            lease=self.leadership.proof,
            patch={"state": state, "reason": reason},
            set_timers=(Timer(id=fence_timer(node), after_s=left_s),) if lost else (),
            outbox=(node_event(node.id, verdict.judgement, reason),),
        )
        result = await apply(self.store, f"node:{node.id}:{node.version}:{state}", change)
        log.warning("node %s is %s: %s (%s)", node.id, state, reason, result.status)
        if lease_lost(result):
            self.leadership.lose()
        elif lost and result.ok:
            await self._stop_jobs(replace(node, reason=reason))

    async def _stop_jobs(self, node: NodeRecord) -> None:
        for record in await self.store.jobs_in(PLACED):
            for attempt in attempts_on(record, node.id):
                op = f"lost:{node.id}:{node.epoch}:{record.id}:{attempt}"
                fact = NodeGone(node=node.id, why=f"node {node.id} is lost: {node.reason}")
                await self.jobs.learn(record.id, attempt, fact, op=op, lease=self.leadership.proof)
