"""Questions per second that 1, 2 and 4 replicas of MARP answer, as processes on real servers.

Replicas share a queue group, so each question goes to one of them. The processor seconds that the
replicas used tell whether they had a core: on a busy machine they wait for one together.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.placement.servers import ControlPlane, control_plane
from benchmarks.planner.questions import cluster, specs

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.cluster import Device, KindSummary
from frenzy_shared.domain.ids import DeviceId, NodeId
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.state.port import NodeRegistration
from frenzy_shared.state.redis import RedisStore

REPLICAS: Final = (1, 2, 4)
_ASKING: Final = 8  # questions at a time
_SECONDS: Final = 8.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


async def throughput() -> dict[str, dict[str, float]]:
    """Return answers per second, and cores that the replicas used, for each number of them."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder)) as plane:
        await _prepare(plane, cluster(16))
        for count in REPLICAS:
            with _marp(plane, count) as processes:
                found[f"{count} replicas"] = await _measured(plane, processes)
    return found


async def _measured(
    plane: ControlPlane, processes: list[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        bus = await NatsBus.connect(plane.nats.url, name="benchmark")
        stack.push_async_callback(bus.close)
        questions = [PlanRequest(spec=spec).encode() for spec in specs(400, seed=3)]
        await _ask(bus, questions[:40], _SECONDS)  # the first of each replica are cold
        before, started = _cpu_s(processes), time.monotonic()
        answers = await _ask(bus, questions[40:], _SECONDS)
        took = time.monotonic() - started
        used = _cpu_s(processes) - before
    return {
        "answers_per_s": round(answers / took, 1),
        "cores_used": round(used / took, 2),
        "answers_per_core_s": round(answers / used, 1),
    }


async def _ask(bus: NatsBus, questions: list[bytes], seconds: float) -> int:
    """Keep some questions in flight until the time or the questions are over."""
    waiting, until, answered = iter(questions), time.monotonic() + seconds, 0

    async def keep_asking() -> None:
        nonlocal answered
        for question in waiting:
            if time.monotonic() > until:
                return
            reply = await bus.request(subjects.MARP_PLAN, question, timeout_s=30)
            if PlanReply.decode(reply).plans is None:
                raise RuntimeError(f"not planned: {reply[:200]!r}")
            answered += 1

    await asyncio.gather(*(keep_asking() for _ in range(_ASKING)))
    return answered


async def _prepare(plane: ControlPlane, kinds: tuple[KindSummary, ...]) -> None:
    store = await RedisStore.open(plane.valkey.url)
    for number, kind in enumerate(kinds):
        devices = tuple(
            Device(
                id=DeviceId(f"gpu{index}"),
                kind=kind.kind,
                memory_bytes=kind.memory_bytes,
                compute_capability=kind.compute_capability,
            )
            for index in range(8)
        )
        registration = NodeRegistration(
            node=NodeId(f"node-{number}"), boot_id="b", address="127.0.0.1", devices=devices
        )
        await store.register_node(f"register:{number}", registration)
    await store.close()
    bus = await NatsBus.connect(plane.nats.url, name="benchmark")
    await bus.ensure_streams()
    await bus.close()


@contextmanager
def _marp(plane: ControlPlane, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("FRENZY_")},
        "FRENZY_NATS_URL": plane.nats.url,
        "FRENZY_REDIS_URL": plane.valkey.url,
        "OMP_NUM_THREADS": "1",
    }
    path = plane.folder / f"marp-{count}.log"
    with path.open("wb") as log:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "frenzy_marp"], env=environment, stdout=log, stderr=log
            )
            for _ in range(count)
        ]
    try:
        _wait_until_ready(path, count)
        yield running
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(15)


def _wait_until_ready(log: Path, count: int) -> None:
    """Wait until every replica has connected, and a moment more to join the group."""
    deadline = time.monotonic() + 60
    while log.read_text(encoding="utf-8").count("metrics on port") < count:
        if time.monotonic() > deadline:
            raise RuntimeError(log.read_text(encoding="utf-8")[-2000:])
        time.sleep(0.2)
    time.sleep(2)


def _cpu_s(processes: list[subprocess.Popen[bytes]]) -> float:
    """Return the processor seconds that processes have used."""
    used = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / _TICKS
