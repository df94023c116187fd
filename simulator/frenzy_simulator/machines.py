"""The simulated nodes: who holds what, which node is down, and the snapshot that follows."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.cluster import ClusterSnapshot, NodeRecord, NodeState
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.placement import Placement


class Machines:
    """Keeps one snapshot up to date; a node's failure or repair builds it anew."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        """Start with all devices idle."""
        self._nodes = {node.id: node for node in nodes}
        self._held: dict[JobId, Placement] = {}
        self.devices = sum(len(node.devices) for node in nodes)
        self.snapshot = self._build()

    def take(self, job: JobId, placement: Placement) -> None:
        """Give a job its devices.

        Raises:
            AssertionError: one of them is not idle; the scheduler's decision was wrong.
        """
        if not Statement(self.snapshot).allocate(placement.kind, placement.devices):
            raise AssertionError(f"job {job} was given devices that are not idle: {placement}")
        self._held[job] = placement

    def idle(self, placement: Placement) -> bool:
        """Tell whether all devices of a placement are."""
        statement = Statement(self.snapshot)
        free = statement.allocate(placement.kind, placement.devices)
        statement.rollback()
        return free

    def give_back(self, job: JobId) -> str:
        """Take a job's devices back; return their kind."""
        placement = self._held.pop(job)
        if not Statement(self.snapshot).evict(placement.kind, placement.devices):
            raise AssertionError(f"job {job} gave back devices that it did not hold")
        return placement.kind

    def users_of(self, node: NodeId) -> Iterable[JobId]:
        """Return the jobs with a device of a node."""
        return [job for job, placement in self._held.items() if node in placement.nodes]

    def fail(self, node: NodeId) -> None:
        """Take a node out. Its jobs must have given their devices back."""
        self._set(node, NodeState.LOST)

    def repair(self, node: NodeId) -> None:
        """Bring a node back; claims of its earlier life are void."""
        self._set(node, NodeState.UP)

    def nodes_needed(self, kind: str, count: int) -> int:
        """Return the fewest nodes that hold ``count`` devices of a kind when all are idle."""
        return -(-count // max(self.snapshot.largest_node(kind), 1))

    def _set(self, node: NodeId, state: NodeState) -> None:
        record = self._nodes[node]
        self._nodes[node] = replace(record, state=state, epoch=record.epoch + 1)
        self.snapshot = self._build()

    def _build(self) -> Snapshot:
        owners = {
            ref.key: f"{job}#1"
            for job, placement in self._held.items()
            for ref in placement.devices
        }
        return Snapshot.of(ClusterSnapshot(nodes=tuple(self._nodes.values()), owners=owners))
