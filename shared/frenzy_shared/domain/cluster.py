"""Nodes and devices as the control plane knows them."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from frenzy_shared.domain.ids import DeviceId, NodeId

FORGOTTEN: Final = "forgotten"  # the kind of event after which a node has no record


class NodeState(StrEnum):
    """Whether a node can get work."""

    JOINING = "JOINING"  # registered, not yet reconciled
    UP = "UP"
    SUSPECT = "SUSPECT"  # no heartbeat for a while: no new work
    LOST = "LOST"
    DRAINING = "DRAINING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator of a node.

    ``memory_bytes`` is what the node measured as usable (cudaMemGetInfo total minus what other
    processes hold), never a table's nominal figure. ``relative_speed`` is 1.0 for real devices;
    an emulated device runs at that fraction of the host's speed. ``problem`` is empty on a
    healthy device, else says why it must not be used.
    """

    id: DeviceId
    kind: str
    memory_bytes: int
    compute_capability: str = ""  # "8.0"; "" for emulated devices
    emulated: bool = False
    relative_speed: float = 1.0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A launch that a node refused."""

    time_ms: int
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node's record. ``epoch`` grows at every registration and fences older agents.

    ``drain`` says why the node must get no new work; "" when it may. It outlives silence and
    registrations: a node that comes back with it is DRAINING instead of UP.
    """

    id: NodeId
    state: NodeState
    version: int
    epoch: int
    boot_id: str
    address: str  # where other nodes reach its ranks
    devices: tuple[Device, ...]
    reason: str = ""
    updated_ms: int = 0
    labels: tuple[tuple[str, str], ...] = ()  # what its operator calls it; by key
    host_memory_bytes: int = 0  # 0: unknown
    drain: str = ""
    drain_by_ms: int = 0  # when what runs there is stopped, in wall-clock time; 0: never
    strikes: tuple[Strike, ...] = ()  # the latest, oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Nodes and owners at one moment; the scheduler's only view of the cluster.

    ``owners`` maps ``<node>/<device>`` to the owner token, free devices included.
    """

    nodes: tuple[NodeRecord, ...]
    owners: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSummary:
    """One device kind of a cluster, as MARP needs it.

    ``memory_bytes`` is the smallest usable memory among the kind's devices;
    ``node_counts`` are the devices per node, largest first (one entry a node).
    ``host_memory_bytes`` is the smallest RAM of their nodes, 0 where one does not say.
    """

    kind: str
    memory_bytes: int
    compute_capability: str
    emulated: bool
    relative_speed: float
    node_counts: tuple[int, ...]
    host_memory_bytes: int = 0

    @property
    def total(self) -> int:
        """Return the devices of this kind in the whole cluster."""
        return sum(self.node_counts)


def summarize_kinds(nodes: Iterable[NodeRecord]) -> tuple[KindSummary, ...]:
    """Group the healthy devices of nodes that may ever get work (not LOST) by kind, by name."""
    grouped: dict[str, dict[NodeId, list[Device]]] = {}
    hosts: dict[NodeId, int] = {}
    for node in nodes:
        if node.state is NodeState.LOST:
            continue
        hosts[node.id] = node.host_memory_bytes
        for device in node.devices:
            if not device.problem:
                grouped.setdefault(device.kind, {}).setdefault(node.id, []).append(device)
    return tuple(_summary(kind, grouped[kind], hosts) for kind in sorted(grouped))


def kinds_digest(kinds: Iterable[KindSummary]) -> str:
    """Return a short digest of what plans depend on, so that stale plans can be told."""
    text = "|".join(
        f"{k.kind}:{k.memory_bytes}:{k.compute_capability}:{k.relative_speed}:{k.node_counts}"
        for k in kinds
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def owner_token(job: str, attempt: int) -> str:
    """Return the value that marks a device as owned by one attempt of a job."""
    return f"{job}#{attempt}"


def fence_timer(node: NodeRecord) -> str:
    """Return the timer after which a lost node's ranks are surely dead."""
    return f"fence:{node.id}:{node.epoch}"


def dead_timer(node: NodeRecord) -> str:
    """Return the timer that gives up what a dead node held, on an operator's word."""
    return f"dead:{node.id}:{node.epoch}"


def drain_timer(node: NodeId) -> str:
    """Return the timer after which a draining node's jobs are stopped; one over all epochs."""
    return f"drain:{node}:0"


def _summary(
    kind: str, by_node: dict[NodeId, list[Device]], hosts: dict[NodeId, int]
) -> KindSummary:
    devices = [device for group in by_node.values() for device in group]
    return KindSummary(
        kind=kind,
        memory_bytes=min(device.memory_bytes for device in devices),
        compute_capability=devices[0].compute_capability,
        emulated=devices[0].emulated,
        relative_speed=min(device.relative_speed for device in devices),
        node_counts=tuple(sorted((len(group) for group in by_node.values()), reverse=True)),
        host_memory_bytes=min(hosts[node] for node in by_node),
    )
