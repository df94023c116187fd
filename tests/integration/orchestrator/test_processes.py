"""Agents as processes on a real NATS server: kill -9, SIGSTOP, SIGTERM, two nodes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.agent import (
    Controller,
    eventually,
    order,
    processes_of,
    script_spec,
)
from tests.support.nats import fresh_nats_server

from frenzy_orchestrator.shim import procfs
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    Evidence,
    EvidenceKind,
    LogBatch,
    Phase,
    RankAssignment,
)

__all__ = ["fresh_nats_server"]
ROOT = Path(__file__).resolve().parents[3]
WAITER = """
import os, sys, time
print("up", flush=True)
while not os.path.exists("finish"):
    time.sleep(0.02)
sys.exit(9)
"""
MEET = """
import os, socket, sys, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(address) as server:
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            server.accept()[0].close()
else:
    for _ in range(500):
        try:
            socket.create_connection(address).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
print("met as", os.environ["RANK"])
"""


class NatsController(Controller):
    """The scripted control plane on a real server: evidence and logs are collected as they come."""

    def __init__(self, bus):
        self.bus = bus
        self.orders, self.epochs, self.heartbeats = {}, {}, []
        self.answering, self.fenced, self.over = True, False, {}
        self._evidence, self._lines = [], []

    async def start(self):
        await self.bus.ensure_streams()
        await super().start()
        await self.bus.subscribe(subjects.EVIDENCE, self._on_evidence)
        await self.bus.subscribe("frenzy.v1.log.>", self._on_log)
        return self

    async def _on_evidence(self, message):
        self._evidence.append(Evidence.decode(message.payload))

    async def _on_log(self, message):
        self._lines.append(LogBatch.decode(message.payload))

    def evidence(self, kind=None, job=None, node=None):
        return [
            entry
            for entry in self._evidence
            if kind in (None, entry.kind)
            and job in (None, entry.job)
            and node in (None, entry.node)
        ]


class AgentProcess:
    def __init__(self, root, url, node, address, **variables):
        self.data_dir = root / node
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.log = root / f"{node}.log"
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYTHONPATH": str(ROOT),
            "FRENZY_NODE": node,
            "FRENZY_ADDRESS": address,
            "FRENZY_NATS_URL": url,
            "FRENZY_DATA_DIR": str(self.data_dir),
            "FRENZY_CHECKPOINTS_DIR": str(root / "checkpoints"),
            "FRENZY_EMULATED_DEVICES": "emulated-small:1:64MiB:1.0",
            "FRENZY_HEARTBEAT_S": "0.3",
            "FRENZY_MIN_FREE_BYTES": "0",
            "FRENZY_CGROUPS": "false",
            **variables,
        }
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("run_agent.py"))],
                env=self.env,
                stdout=log,
                stderr=log,
            )

    def run_json(self, job="j1", attempt=1):
        return json.loads((self.data_dir / f"attempts/{job}.{attempt}/run.json").read_text())

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class World:
    def __init__(self, root, server):
        self.root, self.server, self.agents = root, server, []

    async def start(self):
        self.bus = await NatsBus.connect(self.server.url, name="controller")
        self.control = await NatsController(self.bus).start()
        return self

    async def agent(self, node="node-a", address="127.0.1.1", **variables):
        made = AgentProcess(self.root, self.server.url, node, address, **variables)
        self.agents.append(made)
        await eventually(lambda: node in self.control.epochs or made.process.poll() is not None)
        assert made.process.poll() is None, made.log.read_text()
        return made

    def script(self, text):
        folder = self.root / "work"
        folder.mkdir(exist_ok=True)
        (folder / "job.py").write_text(text)
        return script_spec(folder)

    async def close(self):
        for agent in self.agents:
            agent.close()
        await self.bus.close()
        deadline = time.monotonic() + 10
        while left := [p for agent in self.agents for p in processes_of(agent.data_dir)]:
            assert time.monotonic() < deadline, f"left behind: {left}"
            procfs.send(left, signal.SIGKILL)
            await asyncio.sleep(0.02)


@pytest.fixture
async def world(tmp_path, fresh_nats_server):
    made = await World(tmp_path, fresh_nats_server).start()
    yield made
    await made.close()


async def test_kill_9_of_the_agent_leaves_its_ranks_and_their_true_end(world):
    agent = await world.agent()
    await world.control.start_job("node-a", order(spec=world.script(WAITER)))
    run = agent.run_json()
    agent.signal(signal.SIGKILL)
    agent.process.wait()
    await asyncio.sleep(0.3)
    rank = run["ranks"][0]
    assert procfs.is_alive(rank["pid"], rank["start"])
    agent.start()
    await eventually(lambda: world.control.epochs["node-a"] == 2)
    assert agent.run_json() == run
    (agent.data_dir / "attempts/j1.1/work/finish").touch()
    exited = await world.control.seen(EvidenceKind.EXITED)
    await world.control.seen(EvidenceKind.CLEAN)
    assert exited.outcomes[0].exit_code == 9
    assert processes_of(agent.data_dir) == []


async def test_a_stopped_agent_is_fenced_by_the_shim_within_the_lease(world):
    agent = await world.agent(FRENZY_FENCE_AFTER_S="2")
    await world.control.start_job("node-a", order(spec=world.script(WAITER)))
    await asyncio.sleep(2.5)
    assert processes_of(agent.data_dir), "answered heartbeats keep it alive"
    agent.signal(signal.SIGSTOP)
    stopped_at = procfs.boottime()
    exit_file = agent.data_dir / "attempts/j1.1/exit.json"
    await eventually(exit_file.exists, "fenced")
    record = json.loads(exit_file.read_text())
    assert record["ended_by"] == "fenced"
    assert record["boottime"] - stopped_at < 2 + 1
    agent.signal(signal.SIGCONT)
    exited = await world.control.seen(EvidenceKind.EXITED)
    assert exited.outcomes[0].reason is StopReason.NODE_LOST
    await world.control.seen(EvidenceKind.CLEAN)


async def test_sigterm_ends_the_agent_and_not_its_ranks(world):
    agent = await world.agent()
    await world.control.start_job("node-a", order(spec=world.script(WAITER)))
    agent.signal(signal.SIGTERM)
    assert await asyncio.to_thread(agent.process.wait, 10) == 0
    rank = agent.run_json()["ranks"][0]
    assert procfs.is_alive(rank["pid"], rank["start"])


async def test_a_gang_of_two_nodes_meets(world):
    agents = [await world.agent(f"node-{n}", f"127.0.1.{n}") for n in (1, 2)]
    spec = world.script(MEET)
    orders = [
        order(
            spec=spec,
            ranks=(RankAssignment(rank=rank, local_rank=0, device="emu0"),),
            world_size=2,
        )
        for rank in (0, 1)
    ]
    for agent, given in zip(("node-1", "node-2"), orders, strict=True):
        await world.control.push(agent, given)
    await world.control.seen(EvidenceKind.PREPARED, count=2)
    (first,) = world.control.evidence(EvidenceKind.PREPARED, node="node-1")
    (second,) = world.control.evidence(EvidenceKind.PREPARED, node="node-2")
    assert first.rendezvous.startswith("127.0.1.1:")
    assert second.rendezvous == ""
    for agent, given in zip(("node-1", "node-2"), orders, strict=True):
        go = given.model_copy(update={"phase": Phase.GO, "rendezvous": first.rendezvous})
        await world.control.push(agent, go)
    await world.control.seen(EvidenceKind.CLEAN, count=2)
    exited = world.control.evidence(EvidenceKind.EXITED)
    assert {o.rank: o.reason for e in exited for o in e.outcomes} == {
        0: StopReason.COMPLETED,
        1: StopReason.COMPLETED,
    }
    assert [processes_of(agent.data_dir) for agent in agents] == [[], []]


async def test_a_second_agent_on_the_folder_is_refused(world):
    agent = await world.agent()
    second = await asyncio.to_thread(
        subprocess.run, agent_command(), env=agent.env, capture_output=True, text=True, timeout=30
    )
    assert second.returncode == 2
    assert "another agent runs with FRENZY_DATA_DIR" in second.stderr


async def test_a_second_agent_of_the_name_ends_the_first_with_a_clear_error(world):
    agent = await world.agent()
    await world.control.start_job("node-a", order(spec=world.script(WAITER)))
    await asyncio.sleep(0.5)
    world.control.fenced = True
    assert await asyncio.to_thread(agent.process.wait, 40) == 2
    assert "another agent runs as node node-a" in agent.log.read_text()
    assert processes_of(agent.data_dir) == []


def agent_command():
    return [sys.executable, str(Path(__file__).with_name("run_agent.py"))]
