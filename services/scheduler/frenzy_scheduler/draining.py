"""Nodes that should get no new work: refused launches that lead there, and the deadline."""

import logging
from dataclasses import dataclass
from typing import Any

from frenzy_scheduler.core.facts import NodeDrained
from frenzy_scheduler.core.strikes import StrikeRule, is_out, struck
from frenzy_scheduler.desired import attempts_on
from frenzy_scheduler.jobs import Jobs, apply
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.nodes import drain_decision, node_event
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import NodeRecord, NodeState, Strike, drain_timer
from frenzy_shared.domain.ids import NodeId
from frenzy_shared.domain.job import PLACED
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import Evidence
from frenzy_shared.state.port import Change, OutboxMessage, StateStore, Status

log = logging.getLogger(__name__)

_TRIES = 5  # of one strike, each lost to another writer of the node


@dataclass(kw_only=True)
class Draining:
    """Drains nodes by the rule of strikes, and ends their jobs when a drain's time is up."""

    store: StateStore
    clock: Clock
    ids: IdSource
    jobs: Jobs
    leadership: Leadership
    rule: StrikeRule

    async def refused(self, evidence: Evidence) -> None:
        """Note a launch that a node refused; any replica may.

        Raises:
            Unavailable: the store is.
        """
        for number in range(_TRIES):
            cluster = (await self.store.cluster()).nodes
            node = next((node for node in cluster if node.id == evidence.node), None)
            if node is None or node.drain:
                return
            strikes = struck(node, cluster, evidence.job, self.rule, self.clock.now_ms())
            if strikes is None:
                log.info("no strike for %s: other nodes refuse %s too", node.id, evidence.job)
                return
            op = f"strike:{evidence.node}:{evidence.sequence}:{number}"
            result = await apply(self.store, op, self._strike(node, strikes, evidence.message))
            if result.status is not Status.STALE:
                return

    async def end_jobs(self, name: NodeId) -> None:
        """Stop what still runs on a draining node; it checkpoints and waits for other devices."""
        node = await self.store.node(name)
        if node is not None and node.drain:
            for record in await self.store.jobs_in(PLACED):
                for attempt in attempts_on(record, name):
                    op = f"drain:{name}:{node.version}:{record.id}:{attempt}"
                    fact = NodeDrained(node=name, why=f"{name} is drained: {node.drain}")
                    await self.jobs.learn(
                        record.id, attempt, fact, op=op, lease=self.leadership.proof
                    )
        timer = drain_timer(name)
        change = Change(entity=f"node:{name}", lease=self.leadership.proof, clear_timers=(timer,))
        await apply(self.store, f"timer:{timer}:done:{self.ids.new_id()}", change)

    def _strike(self, node: NodeRecord, strikes: tuple[Strike, ...], message: str) -> Change:
        patch: dict[str, Any] = {"strikes": [to_json(strike) for strike in strikes]}
        kind, why = "struck", message
        kept: tuple[OutboxMessage, ...] = ()
        if is_out(strikes, self.rule):
            minutes = self.rule.window_s / 60
            why = f"{len(strikes)} refused launches within {minutes:.0f} min, the last: {message}"
            kind, patch["drain"] = "draining", why
            kept = (drain_decision(node.id, kind, why),)
            log.warning("node %s is drained: %s", node.id, why)
            if node.state is NodeState.UP:
                patch |= {"state": NodeState.DRAINING, "reason": why}
        return Change(
            entity=f"node:{node.id}",
            expect_version=node.version,
            patch=patch,
            outbox=(*kept, node_event(node.id, kind, why)),
        )
