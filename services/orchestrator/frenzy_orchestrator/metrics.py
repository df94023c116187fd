"""What the node agent counts, for /metrics."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_HEARTBEAT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class AgentMetrics:
    """The agent's metrics in one registry; every one carries the node's name."""

    def __init__(self, node: str, registry: CollectorRegistry) -> None:
        """Register them."""
        self._node = node
        self._up = Gauge(
            "frenzy_node_up", "1 while heartbeats are answered", ["node"], registry=registry
        )
        self._devices = Gauge(
            "frenzy_gpu_memory_used_bytes",
            "Memory in use; for an emulated device the peak its rank reported",
            ["node", "device", "kind", "emulated"],
            registry=registry,
        )
        self._attempts = Gauge(
            "frenzy_node_attempts", "Attempts held, by phase", ["node", "phase"], registry=registry
        )
        self._pending = Gauge(
            "frenzy_node_evidence_pending",
            "Evidence that the bus does not have yet",
            ["node"],
            registry=registry,
        )
        self._heartbeats = Histogram(
            "frenzy_node_heartbeat_seconds",
            "Time from a heartbeat to its answer",
            ["node"],
            registry=registry,
            buckets=_HEARTBEAT_BUCKETS_S,
        )
        self._missed = Counter(
            "frenzy_node_heartbeats_missed_total",
            "Heartbeats without an answer",
            ["node"],
            registry=registry,
        )

    def answered(self, seconds: float) -> None:
        """Count an answered heartbeat."""
        self._up.labels(self._node).set(1)
        self._heartbeats.labels(self._node).observe(seconds)

    def missed(self) -> None:
        """Count a heartbeat without an answer."""
        self._up.labels(self._node).set(0)
        self._missed.labels(self._node).inc()

    def show_device(self, device: str, kind: str, *, emulated: bool, used_bytes: int) -> None:
        """Show one device's memory in use."""
        labels = (self._node, device, kind, str(emulated).lower())
        self._devices.labels(*labels).set(used_bytes)

    def show_attempts(self, phases: Mapping[str, int]) -> None:
        """Show how many attempts are in which phase; a phase left out has none."""
        self._attempts.clear()
        for phase, count in phases.items():
            self._attempts.labels(self._node, phase).set(count)

    def show_pending(self, count: int) -> None:
        """Show how much evidence waits for the bus."""
        self._pending.labels(self._node).set(count)
