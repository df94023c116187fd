"""The cluster's idle devices, indexed so that a placement costs lookups instead of scans."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from frenzy_shared.domain.cluster import ClusterSnapshot, Device, NodeRecord, NodeState
from frenzy_shared.domain.ids import DeviceId, NodeId
from frenzy_shared.domain.placement import DeviceRef


@dataclass(slots=True)
class KindIndex:
    """Idle devices of one kind. Devices of a node and nodes of a bucket are kept sorted."""

    memory_bytes: int  # the smallest device of the kind
    total: int = 0  # healthy devices on nodes that can get work
    idle: int = 0
    idle_by_node: dict[NodeId, list[DeviceId]] = field(default_factory=dict[NodeId, list[DeviceId]])
    largest_node: int = 0  # healthy devices of the node that has most
    buckets: dict[int, list[NodeId]] = field(
        default_factory=dict[int, list[NodeId]]
    )  # idle count -> nodes by name


class Snapshot:
    """What a cycle may hand out: healthy devices of nodes that are UP.

    Build it with ``of``. It changes only through a ``Statement``.
    """

    def __init__(self, kinds: dict[str, KindIndex], epochs: dict[NodeId, int]) -> None:
        self._kinds = kinds
        self._epochs = epochs

    @classmethod
    def of(cls, cluster: ClusterSnapshot) -> "Snapshot":
        """Index a cluster read from the store."""
        kinds: dict[str, KindIndex] = {}
        epochs: dict[NodeId, int] = {}
        for node in cluster.nodes:
            if node.state is NodeState.UP:
                epochs[node.id] = node.epoch
                for kind, devices in _healthy_by_kind(node).items():
                    index = kinds.setdefault(kind, KindIndex(memory_bytes=_smallest(devices)))
                    _add_node(index, node.id, devices, cluster.owners)
        return cls(kinds, epochs)

    def copy(self) -> "Snapshot":
        """Return a snapshot that can be edited without touching this one."""
        return Snapshot({kind: _copy(index) for kind, index in self._kinds.items()}, self._epochs)

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
        index = self._kinds.get(kind)
        return index.idle if index else 0

    def largest_node(self, kind: str) -> int:
        """Return how many healthy devices of a kind the best equipped node has."""
        index = self._kinds.get(kind)
        return index.largest_node if index else 0

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
        epoch = self._epochs[node]
        return tuple(DeviceRef(node=node, device=device, epoch=epoch) for device in idle[:count])

    def is_idle(self, kind: str, ref: DeviceRef) -> bool:
        """Tell whether a device can still be handed out."""
        index = self._kinds.get(kind)
        return index is not None and ref.device in index.idle_by_node.get(ref.node, ())

    def take(self, kind: str, ref: DeviceRef) -> None:
        """Mark an idle device as used; for ``Statement``, which can undo it."""
        index = self._kinds[kind]
        devices = index.idle_by_node[ref.node]
        devices.remove(ref.device)
        _move(index, ref.node, len(devices) + 1, len(devices))
        index.idle -= 1

    def give(self, kind: str, ref: DeviceRef) -> None:
        """Mark a used device as idle; for ``Statement``, which can undo it."""
        index = self._kinds[kind]
        devices = index.idle_by_node[ref.node]
        insort(devices, ref.device)
        _move(index, ref.node, len(devices) - 1, len(devices))
        index.idle += 1


@dataclass(frozen=True, slots=True)
class _Edit:
    kind: str
    ref: DeviceRef
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
        unique = len(set(devices)) == len(devices)
        if not unique or not all(self._snapshot.is_idle(kind, ref) for ref in devices):
            return False
        for ref in devices:
            self._apply(_Edit(kind, ref, taken=True))
        return True

    def evict(self, kind: str, devices: Sequence[DeviceRef]) -> bool:
        """Give back all ``devices`` of a running gang, or none and False when one is idle."""
        unique = len(set(devices)) == len(devices)
        if not unique or any(self._snapshot.is_idle(kind, ref) for ref in devices):
            return False
        for ref in devices:
            self._apply(_Edit(kind, ref, taken=False))
        return True

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo every edit made after ``checkpoint``, the latest first."""
        while len(self._edits) > checkpoint:
            edit = self._edits.pop()
            undo = self._snapshot.give if edit.taken else self._snapshot.take
            undo(edit.kind, edit.ref)

    def commit(self) -> None:
        """Keep all edits; a later rollback has nothing to undo."""
        self._edits.clear()

    def _apply(self, edit: _Edit) -> None:
        do = self._snapshot.take if edit.taken else self._snapshot.give
        do(edit.kind, edit.ref)
        self._edits.append(edit)


def _healthy_by_kind(node: NodeRecord) -> dict[str, list[Device]]:
    grouped: dict[str, list[Device]] = {}
    for device in node.devices:
        if not device.problem:
            grouped.setdefault(device.kind, []).append(device)
    return grouped


def _smallest(devices: Iterable[Device]) -> int:
    return min(device.memory_bytes for device in devices)


def _add_node(
    index: KindIndex, node: NodeId, devices: Sequence[Device], owners: dict[str, str]
) -> None:
    idle = sorted(d.id for d in devices if owners.get(f"{node}/{d.id}", "") == "")
    index.memory_bytes = min(index.memory_bytes, _smallest(devices))
    index.total += len(devices)
    index.largest_node = max(index.largest_node, len(devices))
    index.idle += len(idle)
    index.idle_by_node[node] = idle
    if idle:
        insort(index.buckets.setdefault(len(idle), []), node)


def _copy(index: KindIndex) -> KindIndex:
    return KindIndex(
        memory_bytes=index.memory_bytes,
        total=index.total,
        idle=index.idle,
        largest_node=index.largest_node,
        idle_by_node={node: list(devices) for node, devices in index.idle_by_node.items()},
        buckets={size: list(nodes) for size, nodes in index.buckets.items()},
    )


def _move(index: KindIndex, node: NodeId, before: int, after: int) -> None:
    """Put a node from the bucket of its old idle count into that of the new one."""
    if before:
        nodes = index.buckets[before]
        del nodes[bisect_left(nodes, node)]
        if not nodes:
            del index.buckets[before]
    if after:
        insort(index.buckets.setdefault(after, []), node)
