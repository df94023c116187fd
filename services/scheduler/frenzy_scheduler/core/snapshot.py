"""The cluster's idle devices, indexed so that a placement costs lookups instead of scans."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from frenzy_shared.domain.cluster import ClusterSnapshot, Device, NodeRecord, NodeState
from frenzy_shared.domain.ids import DeviceId, NodeId
from frenzy_shared.domain.placement import DeviceRef
from frenzy_shared.domain.plan import ResourcePlan


@dataclass(slots=True)
class KindIndex:
    """Idle devices of one kind. Devices of a node and nodes of a bucket are kept sorted."""

    memory_bytes: int  # the smallest device of the kind
    total: int = 0  # healthy devices on nodes that can get work
    idle_by_node: dict[NodeId, list[DeviceRef]] = field(
        default_factory=dict[NodeId, list[DeviceRef]]
    )
    largest_node: int = 0  # healthy devices of the node that has most
    total_by_node: dict[NodeId, int] = field(default_factory=dict[NodeId, int])
    buckets: dict[int, list[NodeId]] = field(
        default_factory=dict[int, list[NodeId]]
    )  # idle count -> nodes by name


class Snapshot:
    """What a cycle may hand out: healthy devices of nodes that are UP.

    Build it with ``of``. It changes only through a ``Statement``.
    """

    def __init__(self, kinds: dict[str, KindIndex]) -> None:
        self._kinds = kinds
        counts = {kind: sum(map(len, index.idle_by_node.values())) for kind, index in kinds.items()}
        self._idle = {kind: count for kind, count in counts.items() if count}

    @classmethod
    def of(cls, cluster: ClusterSnapshot) -> "Snapshot":
        """Index a cluster read from the store."""
        kinds: dict[str, KindIndex] = {}
        for node in cluster.nodes:
            if node.state is NodeState.UP:
                for kind, devices in _healthy_by_kind(node).items():
                    index = kinds.setdefault(kind, KindIndex(memory_bytes=_smallest(devices)))
                    _add_node(index, node, devices, cluster.owners)
        return cls(kinds)

    def copy(self) -> "Snapshot":
        """Return a snapshot that can be edited without touching this one."""
        return Snapshot({kind: _copy(index) for kind, index in self._kinds.items()})

    def within(self, nodes: frozenset[NodeId] | None) -> "Snapshot":
        """Return what of it is on some nodes, to look at; it does not follow edits. None: all."""
        if nodes is None:
            return self
        found = {kind: _only(index, nodes) for kind, index in self._kinds.items()}
        return Snapshot({kind: index for kind, index in found.items() if index.total})

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that could get work, by name."""
        return tuple(sorted(self._kinds))

    def memory_bytes(self, kind: str) -> int:
        """Return the memory of the smallest device of a kind; 0 when there is none."""
        index = self._kinds.get(kind)
        return index.memory_bytes if index else 0

    def total(self, kind: str) -> int:
        """Return the healthy devices of a kind, idle or not."""
        index = self._kinds.get(kind)
        return index.total if index else 0

    def idle(self, kind: str) -> int:
        """Return the idle devices of a kind."""
        return self._idle.get(kind, 0)

    @property
    def idle_by_kind(self) -> Mapping[str, int]:
        """Return the idle devices of the kinds that have any; follows every edit."""
        return self._idle

    def largest_node(self, kind: str) -> int:
        """Return how many healthy devices of a kind the best equipped node has."""
        index = self._kinds.get(kind)
        return index.largest_node if index else 0

    def most_for(self, plan: ResourcePlan) -> int:
        """Return how many devices a plan could get if all were idle."""
        return self.largest_node(plan.kind) if plan.single_node else self.total(plan.kind)

    def most_idle(self, kind: str) -> int:
        """Return the largest number of idle devices of a kind on one node."""
        index = self._kinds.get(kind)
        return max(index.buckets, default=0) if index else 0

    def tightest_node(self, kind: str, count: int) -> NodeId | None:
        """Return the node with the fewest idle devices that holds ``count``; first by name."""
        index = self._kinds.get(kind)
        sizes = [size for size in index.buckets if size >= count] if index else []
        return index.buckets[min(sizes)][0] if index and sizes else None

    def nodes_by_idle(self, kind: str) -> Iterator[tuple[NodeId, int]]:
        """Yield nodes with idle devices, most idle first, then by name."""
        index = self._kinds.get(kind)
        if index is not None:
            for size in sorted(index.buckets, reverse=True):
                for node in index.buckets[size]:
                    yield node, size

    def devices(self, kind: str, node: NodeId, count: int) -> tuple[DeviceRef, ...]:
        """Return the first ``count`` idle devices of a node, by device id.

        Raises:
            ValueError: the node has fewer.
        """
        idle = self._kinds[kind].idle_by_node[node]
        if len(idle) < count:
            raise ValueError(f"node {node} has {len(idle)} idle {kind}, not {count}")
        return tuple(idle[:count])

    def are_idle(self, kind: str, node: NodeId, refs: Sequence[DeviceRef]) -> bool:
        """Tell whether these are different devices of one node that can still be handed out."""
        index = self._kinds.get(kind)
        idle = index.idle_by_node.get(node, []) if index else []
        if idle[: len(refs)] == list(refs):
            return True
        return len(set(refs)) == len(refs) and all(ref in idle for ref in refs)

    def is_idle(self, kind: str, ref: DeviceRef) -> bool:
        """Tell whether a device can still be handed out."""
        return self.are_idle(kind, ref.node, (ref,))

    def has_node(self, kind: str, node: NodeId) -> bool:
        """Tell whether a node could get work for a kind."""
        index = self._kinds.get(kind)
        return index is not None and node in index.idle_by_node

    def take(self, kind: str, node: NodeId, refs: Sequence[DeviceRef]) -> None:
        """Mark idle devices of one node as used; for ``Statement``, which can undo it."""
        index = self._kinds[kind]
        idle = index.idle_by_node[node]
        before = len(idle)
        if idle[: len(refs)] == list(refs):
            del idle[: len(refs)]
        else:
            for ref in refs:
                idle.remove(ref)
        _move(index, node, before, len(idle))
        self._idle[kind] -= len(refs)
        if not self._idle[kind]:
            del self._idle[kind]

    def give(self, kind: str, node: NodeId, refs: Sequence[DeviceRef]) -> None:
        """Mark used devices of one node as idle; for ``Statement``, which can undo it."""
        index = self._kinds[kind]
        idle = index.idle_by_node[node]
        before = len(idle)
        idle.extend(refs)
        idle.sort(key=_device)
        _move(index, node, before, len(idle))
        self._idle[kind] = self._idle.get(kind, 0) + len(refs)


@dataclass(slots=True)
class _Edit:
    kind: str
    node: NodeId
    refs: Sequence[DeviceRef]
    taken: bool


class Statement:
    """Tentative edits of a snapshot, so that a gang is tried whole.

    ``rollback(checkpoint())`` undoes what came after the checkpoint; ``commit`` keeps everything.
    An allocation takes all its devices or none.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._edits: list[_Edit] = []

    def checkpoint(self) -> int:
        """Return a mark to roll back to."""
        return len(self._edits)

    def allocate(self, kind: str, devices: Sequence[DeviceRef]) -> bool:
        """Take all ``devices``, or none and answer False when one is not idle."""
        by_node = _by_node(devices)
        for node, refs in by_node.items():
            if not self._snapshot.are_idle(kind, node, refs):
                return False
        for node, refs in by_node.items():
            self._snapshot.take(kind, node, refs)
            self._edits.append(_Edit(kind, node, refs, taken=True))
        return True

    def evict(self, kind: str, devices: Sequence[DeviceRef]) -> bool:
        """Give back all ``devices`` of a running gang, or none and False when one is idle.

        Devices of nodes that cannot get work stay out of the snapshot.
        """
        by_node = {
            node: refs
            for node, refs in _by_node(devices).items()
            if self._snapshot.has_node(kind, node)
        }
        for refs in by_node.values():
            unique = len({ref.device for ref in refs}) == len(refs)
            if not unique or any(self._snapshot.is_idle(kind, ref) for ref in refs):
                return False
        for node, refs in by_node.items():
            self._snapshot.give(kind, node, refs)
            self._edits.append(_Edit(kind, node, refs, taken=False))
        return True

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo every edit made after ``checkpoint``, the latest first."""
        while len(self._edits) > checkpoint:
            edit = self._edits.pop()
            undo = self._snapshot.give if edit.taken else self._snapshot.take
            undo(edit.kind, edit.node, edit.refs)

    def commit(self) -> None:
        """Keep all edits; a later rollback has nothing to undo."""
        self._edits.clear()


def _by_node(devices: Sequence[DeviceRef]) -> dict[NodeId, list[DeviceRef]]:
    grouped: dict[NodeId, list[DeviceRef]] = {}
    for ref in devices:
        grouped.setdefault(ref.node, []).append(ref)
    return grouped


def _device(ref: DeviceRef) -> DeviceId:
    return ref.device


def _healthy_by_kind(node: NodeRecord) -> dict[str, list[Device]]:
    grouped: dict[str, list[Device]] = {}
    for device in node.devices:
        if not device.problem:
            grouped.setdefault(device.kind, []).append(device)
    return grouped


def _smallest(devices: Iterable[Device]) -> int:
    return min(device.memory_bytes for device in devices)


def _add_node(
    index: KindIndex, node: NodeRecord, devices: Sequence[Device], owners: dict[str, str]
) -> None:
    idle = sorted(d.id for d in devices if owners.get(f"{node.id}/{d.id}", "") == "")
    index.memory_bytes = min(index.memory_bytes, _smallest(devices))
    index.total += len(devices)
    index.total_by_node[node.id] = len(devices)
    index.largest_node = max(index.largest_node, len(devices))
    index.idle_by_node[node.id] = [
        DeviceRef(node=node.id, device=device, epoch=node.epoch) for device in idle
    ]
    if idle:
        insort(index.buckets.setdefault(len(idle), []), node.id)


def _copy(index: KindIndex) -> KindIndex:
    return KindIndex(
        memory_bytes=index.memory_bytes,
        total=index.total,
        largest_node=index.largest_node,
        total_by_node=index.total_by_node,  # no edit changes it
        idle_by_node={node: list(devices) for node, devices in index.idle_by_node.items()},
        buckets={size: list(nodes) for size, nodes in index.buckets.items()},
    )


def _only(index: KindIndex, nodes: frozenset[NodeId]) -> KindIndex:
    totals = {node: count for node, count in index.total_by_node.items() if node in nodes}
    buckets = {size: [n for n in named if n in nodes] for size, named in index.buckets.items()}
    return KindIndex(
        memory_bytes=index.memory_bytes,
        total=sum(totals.values()),
        largest_node=max(totals.values(), default=0),
        total_by_node=totals,
        idle_by_node={node: index.idle_by_node[node] for node in totals},
        buckets={size: named for size, named in buckets.items() if named},
    )


def _move(index: KindIndex, node: NodeId, before: int, after: int) -> None:
    """Put a node from the bucket of its old idle count into that of the new one."""
    if before == after:
        return
    if before:
        nodes = index.buckets[before]
        del nodes[bisect_left(nodes, node)]
        if not nodes:
            del index.buckets[before]
    if after:
        insort(index.buckets.setdefault(after, []), node)
