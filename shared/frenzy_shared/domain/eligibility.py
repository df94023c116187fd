"""Which nodes a job may run on: pins and exclusions by name, and labels."""

from collections.abc import Iterable
from dataclasses import dataclass

from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePins:
    """What the user fixed about nodes; empty means any."""

    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def allow(self, node: NodeRecord) -> bool:
        """Tell whether a job with these pins may run on a node."""
        return (
            (not self.nodes or node.id in self.nodes)
            and node.id not in self.exclude
            and set(self.labels) <= set(node.labels)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys of the specification that are set."""
        keys = {
            "resources.nodes": self.nodes,
            "resources.exclude_nodes": self.exclude,
            "resources.node_labels": self.labels,
        }
        return tuple(name for name, value in keys.items() if value)


ANYWHERE = NodePins()


def eligible_nodes(pins: NodePins, nodes: Iterable[NodeRecord]) -> frozenset[NodeId] | None:
    """Return the nodes that the pins allow, whatever their state; None without pins: all."""
    if pins == ANYWHERE:
        return None
    return frozenset(node.id for node in nodes if pins.allow(node))
