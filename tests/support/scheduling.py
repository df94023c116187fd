"""Small clusters, plans and jobs for the scheduler's tests."""

from collections.abc import Iterable, Mapping

from tests.support.plans import resource_plan

from frenzy_scheduler.core.decisions import QueuedJob
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.cluster import ClusterSnapshot, Device, NodeRecord, NodeState
from frenzy_shared.domain.ids import DeviceId, JobId, NodeId, PlanId, ProjectName
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.placement import DeviceRef, Placement
from frenzy_shared.domain.plan import (
    Band,
    ResourcePlan,
)

GIB = 1024**3
MEMORY_BYTES = {
    "t4": 16 * GIB,
    "rtx": 24 * GIB,
    "a100-40": 40 * GIB,
    "a100-80": 80 * GIB,
}
_BAND = Band(low=1, expected=2, high=3)


def device(name: str, kind: str, *, problem: str = "", memory_bytes: int | None = None) -> Device:
    memory = memory_bytes if memory_bytes is not None else MEMORY_BYTES[kind]
    return Device(id=DeviceId(name), kind=kind, memory_bytes=memory, problem=problem)


def node(
    name: str, *devices: Device, state: NodeState = NodeState.UP, epoch: int = 1
) -> NodeRecord:
    return NodeRecord(
        id=NodeId(name),
        state=state,
        version=1,
        epoch=epoch,
        boot_id="boot",
        address="127.0.1.1",
        devices=devices,
    )


def cluster(nodes: Iterable[NodeRecord], owned: Mapping[str, str] | None = None) -> ClusterSnapshot:
    """Return a cluster whose devices are free unless ``owned`` ("node/device" -> owner) says."""
    nodes = tuple(nodes)
    owners = {f"{n.id}/{d.id}": "" for n in nodes for d in n.devices}
    return ClusterSnapshot(nodes=nodes, owners={**owners, **(owned or {})})


def machines(layout: Mapping[str, Mapping[str, tuple[int, int]]]) -> Snapshot:
    """Index a cluster written as {node: {kind: (devices, idle)}}; the last devices are idle.

    Device ids are ``<kind>-<number>`` from 0, so the idle ones of (4, 2) are number 2 and 3.
    """
    nodes, owned = [], {}
    for name, kinds in layout.items():
        devices = []
        for kind, (count, idle) in kinds.items():
            for number in range(count):
                devices.append(device(f"{kind}-{number}", kind))
                if number < count - idle:
                    owned[f"{name}/{kind}-{number}"] = "other#1"
        nodes.append(node(name, *devices))
    return Snapshot.of(cluster(nodes, owned))


def plan(
    name: str,
    kind: str,
    count: int,
    *,
    single_node: bool = False,
    zero_stage: int = 1,
    micro_batch: int = 1,
    tensor: int = 1,
    bucket: int = 1000,
) -> ResourcePlan:
    return resource_plan(
        name,
        kind,
        count,
        single_node=single_node,
        zero_stage=zero_stage,
        data=count // tensor,
        tensor=tensor,
        micro_batch_size=micro_batch,
        reduce_bucket_elements=bucket,
    )


def queued(name: str, sequence: int, *plans: ResourcePlan, not_before_ms: int = 0) -> QueuedJob:
    return QueuedJob(
        id=JobId(name), sequence=sequence, plans=plans, version=3, not_before_ms=not_before_ms
    )


def placement(*devices: str, kind: str = "rtx", plan_id: str = "p1") -> Placement:
    """Return a placement on devices written as "node/device", in rank order."""
    refs = []
    for text in devices:
        name, _, unit = text.partition("/")
        refs.append(DeviceRef(node=NodeId(name), device=DeviceId(unit), epoch=1))
    return Placement(plan=PlanId(plan_id), kind=kind, devices=tuple(refs))


def job(state: JobState = JobState.QUEUED, **fields: object) -> JobRecord:
    record = {
        "id": JobId("job-1"),
        "project": ProjectName("default"),
        "name": "train",
        "state": state,
        "version": 2,
        "sequence": 1,
    }
    return JobRecord(**{**record, **fields})
