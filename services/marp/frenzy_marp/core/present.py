"""The cluster that plans are made for, and what of it a job with node pins may use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from frenzy_shared.domain.cluster import (
    KindSummary,
    NodeRecord,
    NodeState,
    kinds_digest,
    summarize_kinds,
)
from frenzy_shared.domain.eligibility import ANYWHERE, NodePins
from frenzy_shared.domain.plan import PlanSet, RefusedPlan


@dataclass(frozen=True, slots=True)
class Present:
    """The nodes of a cluster at one moment, and their kinds."""

    nodes: Sequence[NodeRecord]
    kinds: tuple[KindSummary, ...]
    digest: str  # tells plans for these kinds from stale ones

    @classmethod
    def of(cls, nodes: Sequence[NodeRecord]) -> "Present":
        """Return what these nodes have."""
        kinds = summarize_kinds(nodes)
        return cls(nodes, kinds, kinds_digest(kinds))

    def within(self, pins: NodePins) -> tuple[KindSummary, ...]:
        """Return the kinds of the nodes that a job may use."""
        if pins == ANYWHERE:
            return self.kinds
        return summarize_kinds(node for node in self.nodes if pins.allow(node))

    def told(self, plans: PlanSet, pins: NodePins) -> PlanSet:
        """Return plans made ``within`` the pins, with what the pins left out.

        They carry the whole cluster's digest: they are stale when that changes.
        """
        if pins == ANYWHERE:
            return plans
        named = ", ".join(pins.names)
        usable = {kind.kind for kind in self.within(pins)}
        left_out = tuple(
            RefusedPlan(
                kind=kind.kind,
                device_count=0,
                option=kind.kind,
                reason="the nodes that the job may use have none",
                pin=named,
            )
            for kind in self.kinds
            if kind.kind not in usable
        )
        message = plans.message if usable else self._nobody(named)
        refused = (*plans.refused, *left_out)
        return replace(plans, kinds_digest=self.digest, refused=refused, message=message)

    def _nobody(self, pins: str) -> str:
        names = ", ".join(node.id for node in self.nodes if node.state is not NodeState.LOST)
        return f"no node with devices is allowed by {pins}; nodes: {names or 'none'}"
