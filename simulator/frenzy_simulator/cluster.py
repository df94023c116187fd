"""The cluster of a simulation, from a file such as ``nodes: [{kind: T4, gpus: 4, count: 6}]``."""

import difflib
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import Field, ValidationError

from frenzy_shared.catalog.gpus import GpuModel, all_gpus, find_gpu
from frenzy_shared.domain.cluster import Device, NodeRecord, NodeState
from frenzy_shared.domain.ids import DeviceId, NodeId
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.wording import plain_words
from frenzy_shared.units import parse_bytes
from frenzy_simulator.errors import InvalidCluster

MAX_DEVICES: Final = 100_000

_Positive = Annotated[int, Field(ge=1)]


class NodeGroup(Wire):
    """``count`` equal nodes. ``nic_gbps`` and ``labels`` are read but do not matter yet."""

    kind: str
    gpus: Annotated[int, Field(ge=1, le=64)]
    count: _Positive = 1
    memory: str | None = None  # usable memory of one GPU; the catalogue's when absent
    nic_gbps: Annotated[float, Field(gt=0)] | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class ClusterFile(Wire):
    """A whole cluster file."""

    nodes: Annotated[list[NodeGroup], Field(min_length=1)]


def load_cluster(path: Path) -> tuple[NodeRecord, ...]:
    """Read a cluster file.

    Raises:
        InvalidCluster: naming what is wrong and where.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidCluster(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidCluster(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    return parse_cluster(data)


def parse_cluster(data: Any) -> tuple[NodeRecord, ...]:  # noqa: ANN401 - whatever a YAML file holds
    """Make nodes from a cluster file's content.

    Raises:
        InvalidCluster: not the expected shape, no nodes, an unknown kind, too many devices.
    """
    try:
        groups = ClusterFile.model_validate(data).nodes
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidCluster(
            f"cluster: {where}: {plain_words(first)}",
            suggestions=["write for example: nodes: [{kind: T4, gpus: 4, count: 6}]"],
        ) from error
    total = sum(group.gpus * group.count for group in groups)
    if total > MAX_DEVICES:
        raise InvalidCluster(f"cluster: {total} GPUs; at most {MAX_DEVICES} can be simulated")
    nodes: list[NodeRecord] = []
    for number, group in enumerate(groups):
        gpu = _gpu(group.kind, number)
        memory = _memory(group, gpu, number)
        nodes += [_node(len(nodes) + n, group.gpus, gpu, memory) for n in range(group.count)]
    return tuple(nodes)


def _gpu(kind: str, number: int) -> GpuModel:
    gpu = find_gpu(kind)
    if gpu is None:
        names = {model.name.lower(): model.name for model in all_gpus()}
        close = difflib.get_close_matches(kind.lower(), names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(names[name] for name in close)}?" if close else ""
        raise InvalidCluster(
            f"cluster: nodes.{number}.kind: no GPU is called {kind[:80]!r}",
            suggestions=[hint] if hint else [],
        )
    return gpu


def _memory(group: NodeGroup, gpu: GpuModel, number: int) -> int:
    if group.memory is None:
        if gpu.memory_bytes == 0:  # emulated kinds have none of their own
            raise InvalidCluster(f"cluster: nodes.{number}: {group.kind} needs a memory")
        return gpu.memory_bytes
    try:
        return parse_bytes(group.memory)
    except ValueError as error:
        raise InvalidCluster(f"cluster: nodes.{number}.memory: {error}") from error


def _node(number: int, gpus: int, gpu: GpuModel, memory_bytes: int) -> NodeRecord:
    devices = tuple(
        Device(
            id=DeviceId(f"gpu-{index:02}"),
            kind=gpu.name,
            memory_bytes=memory_bytes,
            compute_capability=gpu.compute_capability,
            emulated=gpu.emulated,
        )
        for index in range(gpus)
    )
    return NodeRecord(
        id=NodeId(f"node-{number:05}"),
        state=NodeState.UP,
        version=1,
        epoch=1,
        boot_id="simulated",
        address="",
        devices=devices,
    )
