"""The operator's use cases: nodes taken out of service, and a store that is put right."""

import base64
import gzip
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from frenzy_gateway import nodes, views
from frenzy_gateway.callers import Caller
from frenzy_gateway.questions import Questions
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import NodeId, is_name
from frenzy_shared.errors import InvalidState, NotFound, Unavailable
from frenzy_shared.messages.http import DrainRequest, NodeView
from frenzy_shared.messages.v1 import Reconciliation
from frenzy_shared.state.port import Change, StateStore, Status

log = logging.getLogger(__name__)

_TRIES: Final = 20  # each lost to another writer of the same node


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What only administrators of all projects may do. Doing a thing twice changes nothing."""

    state: StateStore
    clock: Clock
    ids: IdSource
    questions: Questions

    async def drain(self, caller: Caller, node: str, request: DrainRequest) -> NodeView:
        """Give a node no new work; end what runs there when the deadline is over.

        Raises:
            NotFound: there is no such node.
            InvalidSpec: naming the wrong field.
        """
        now_ms = self.clock.now_ms()
        decide = partial(nodes.drain_change, request=request, by=caller.name, now_ms=now_ms)
        return await self._apply(caller.name, node, "drained", decide)

    async def undrain(self, caller: Caller, node: str) -> NodeView:
        """Let a node have work again."""
        decide = partial(nodes.undrain_change, by=caller.name)
        return await self._apply(caller.name, node, "undrained", decide)

    async def confirm_dead(self, caller: Caller, node: str) -> NodeView:
        """Requeue what a silent node ran, on the operator's word that nothing runs there.

        Raises:
            InvalidState: the node is not silent, or nobody judges that: the store is in SAFE MODE.
        """
        if (await self.state.health()).safe_mode:
            raise InvalidState(
                "the store is in SAFE MODE, in which nobody judges which nodes are silent",
                suggestions=(f"frenzy admin reconcile --apply --dead {node[:80]}",),
            )
        decide = partial(nodes.confirm_dead_change, by=caller.name)
        return await self._apply(caller.name, node, "confirmed dead", decide)

    async def forget_node(self, caller: Caller, node: str) -> None:
        """Remove the record of a node that is gone for ever.

        Raises:
            NotFound: there is no such node.
            InvalidState: it is not lost, or something of it is still held.
        """
        for _ in range(_TRIES):
            wanted = nodes.forgetting(await self._record(node), caller.name)
            operation = f"operator:forget:{node}:{self.ids.new_id()}"
            result = await self.state.forget_node(operation, wanted)
            if result.ok:
                log.warning("node %s forgotten by %s", node, caller.name)
                return
            if result.status is not Status.STALE:
                raise InvalidState(
                    f"node {node} cannot be forgotten: {result.detail}",
                    suggestions=(
                        "wait until its jobs have gone elsewhere",
                        f"or say that the machine is off: frenzy nodes confirm-dead {node}",
                    ),
                )
        raise Unavailable(f"node {node} changes too quickly; try again")

    async def shut_out(self, caller: Caller, node: str) -> None:
        """Show that a node's credentials are void; one that never reported has nothing to show."""
        if await self.state.node(NodeId(node)) is not None:
            decide = partial(nodes.revoked_change, by=caller.name)
            await self._apply(caller.name, node, "shut out", decide)

    async def readmit(self, node: str) -> None:
        """Let a node have work again that was shut out and has just got a new key."""
        if await self.state.node(NodeId(node)) is not None:
            by = "enrolling again"
            await self._apply(by, node, "admitted", partial(nodes.readmitted_change, by=by))

    async def reconcile(
        self, caller: Caller, *, apply: bool, dead: tuple[str, ...]
    ) -> Reconciliation:
        """Show what the store says wrongly in SAFE MODE, or put it right; ``dead`` nodes are off.

        Raises:
            Unavailable: no scheduler leads, or what it needs is away.
        """
        reply = await self.questions.reconciliation(apply=apply, dead=dead, by=caller.name)
        if reply.result is None:
            raise Unavailable(reply.error)
        if reply.result.applied:
            count, gone = reply.result.count, ", ".join(dead) or "none"
            log.warning("%s put the store right: %d changes; dead: %s", caller.name, count, gone)
        return reply.result

    async def record(self, caller: Caller, cycles: int) -> bytes:
        """Return the leading scheduler's last cycles as a recording.

        Raises:
            Unavailable: no scheduler leads, or it has nothing to give.
        """
        reply = await self.questions.recording(cycles)
        if reply.error:
            raise Unavailable(reply.error)
        log.info("%s recorded %d cycles", caller.name, cycles)
        return gzip.decompress(base64.b64decode(reply.recording))

    async def _apply(
        self, by: str, node: str, what: str, decide: Callable[[NodeRecord], Change | None]
    ) -> NodeView:
        operation = f"operator:{node}:{self.ids.new_id()}"
        for number in range(_TRIES):
            change = decide(await self._record(node))
            if change is None:
                return await self._view(node)
            result = await self.state.apply(f"{operation}:{number}", change)
            if result.ok:
                log.warning("node %s %s by %s", node, what, by)
                return await self._view(node)
            if result.status is not Status.STALE:
                raise Unavailable(f"node {node}: {result.status} {result.detail}; try again")
        raise Unavailable(f"node {node} changes too quickly; try again")

    async def _record(self, node: str) -> NodeRecord:
        record = await self.state.node(NodeId(node)) if is_name(node) else None
        if record is None:
            raise NotFound(f"no node {node[:80]!r}", suggestions=("list nodes: frenzy nodes",))
        return record

    async def _view(self, node: str) -> NodeView:
        cluster = await self.state.cluster()
        record = next(record for record in cluster.nodes if record.id == node)
        return views.node_view(record, cluster.owners)
