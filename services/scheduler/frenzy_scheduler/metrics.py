"""What the scheduler measures about itself."""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from frenzy_shared.domain.cluster import ClusterSnapshot, NodeState
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.job import JobRecord

_CYCLE_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_WAIT_S = (0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 6 * 3600.0, 86_400.0)
_RESTART_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class Metrics:
    """Prometheus series, made once in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cycle_s = Histogram(
            "frenzy_scheduler_cycle_seconds",
            "Deciding for the whole queue, without reading or writing the store",
            buckets=_CYCLE_S,
            registry=registry,
        )
        self._wait_s = Histogram(
            "frenzy_job_wait_seconds",
            "From submission to the first placement",
            buckets=_WAIT_S,
            registry=registry,
        )
        self._restart_s = Histogram(
            "frenzy_job_restart_seconds",
            "From the order to make way to the next training step, waiting for devices left out; "
            "warm: the next attempt was ready before, cold: it was started afterwards",
            ["way"],
            buckets=_RESTART_S,
            registry=registry,
        )
        self._pending = _gauge(
            registry, "frenzy_pending_jobs", "Jobs that wait", "reason", "project"
        )
        self._jobs = _gauge(registry, "frenzy_jobs", "Jobs by state", "state")
        self._node_up = _gauge(registry, "frenzy_node_up", "1 when a node can get work", "node")
        self._idle = _gauge(registry, "frenzy_idle_devices", "Devices without an owner", "kind")
        self._lag = Gauge("frenzy_outbox_lag", "Messages not yet published", registry=registry)
        self._waiting = _gauge(
            registry, "frenzy_consumer_lag", "Messages that no replica has handled yet", "durable"
        )
        self._leader = Gauge("frenzy_scheduler_leader", "1 on the leader", registry=registry)
        self._safe_mode = Gauge(
            "frenzy_safe_mode", "1 while the store's history is wrong", registry=registry
        )
        self._moves = Counter(
            "frenzy_job_transitions",
            "Transitions made by this replica",
            ["state", "reason"],
            registry=registry,
        )
        self._conflicts = Counter(
            "frenzy_scheduler_claim_conflicts",
            "Claims that the store refused",
            ["status"],
            registry=registry,
        )

    def cycled(self, seconds: float) -> None:
        """Note one decision over the queue."""
        self._cycle_s.observe(seconds)

    def placed(self, record: JobRecord, now_ms: int) -> None:
        """Note a job's placement; only the first tells how long it waited."""
        if record.attempt == 1:
            self._wait_s.observe(max(now_ms - record.created_ms, 0) / 1000)

    def moved(self, record: JobRecord) -> None:
        """Note a transition."""
        self._moves.labels(state=record.state.value, reason=record.reason).inc()

    def trained(self, before: JobRecord, after: JobRecord) -> None:
        """Note what it cost a job that made way to train again, devices to wait for aside."""
        if before.stopping_ms is None or after.stopping_ms is not None:
            return
        warm = before.placed_ms is not None and before.placed_ms <= before.stopping_ms
        parts = (after.move_ms,) if warm else (after.save_ms, after.launch_ms)
        cost_ms = sum(part for part in parts if part is not None)
        self._restart_s.labels(way="warm" if warm else "cold").observe(cost_ms / 1000)

    def conflicted(self, status: str) -> None:
        """Note a refused claim."""
        self._conflicts.labels(status=status).inc()

    def waiting(self, found: Iterable[tuple[str, ProjectName]]) -> None:
        """Show how many jobs of which project wait for which reason."""
        self._pending.clear()
        for (reason, project), count in Tally(found).items():
            self._pending.labels(reason=reason, project=project).set(count)

    def counted(self, states: Mapping[str, int], outbox_lag: int) -> None:
        """Show jobs by state and what is not published yet."""
        for state, count in states.items():
            self._jobs.labels(state=state).set(count)
        self._lag.set(outbox_lag)

    def lagged(self, durable: str, messages: int) -> None:
        """Show how much a durable has before it."""
        self._waiting.labels(durable=durable).set(messages)

    def saw(self, cluster: ClusterSnapshot) -> None:
        """Show nodes and idle devices."""
        idle: Tally[str] = Tally()
        for node in cluster.nodes:
            self._node_up.labels(node=node.id).set(node.state is NodeState.UP)
            for device in node.devices:
                free = cluster.owners.get(f"{node.id}/{device.id}") == "" and not device.problem
                idle[device.kind] += int(free and node.state is NodeState.UP)
        for kind, count in idle.items():
            self._idle.labels(kind=kind).set(count)

    def led(self, *, leader: bool, safe_mode: bool) -> None:
        """Show whether this replica holds the lease, and whether it may build on the store."""
        self._leader.set(leader)
        self._safe_mode.set(safe_mode)


def _gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    return Gauge(name, text, labels, registry=registry)
