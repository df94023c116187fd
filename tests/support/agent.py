"""Attempt folders, small rank scripts, and proof that no process stays behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.plans import resource_plan

from frenzy_orchestrator.app import assemble
from frenzy_orchestrator.core.launch import Programs
from frenzy_orchestrator.settings import OrchestratorSettings
from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.launch import (
    EXIT,
    LAUNCH,
    LEASE,
    MARKER,
    RUN,
    STOP,
    Launch,
    RankLaunch,
)
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.memory_broker import MemoryBroker
from frenzy_shared.domain.plan import (
    Precision,
)
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import (
    DesiredAttempt,
    DesiredSet,
    Evidence,
    EvidenceKind,
    Heartbeat,
    LogBatch,
    Phase,
    RankAssignment,
)
from frenzy_shared.telemetry import configure

# Scripts run as they are: no torch, no accountant.
SCRIPTS = Programs(
    trainer=(sys.executable, "-c", "print('trained')"),
    script=(sys.executable,),
    bin_folder=str(Path(sys.executable).parent),
)
SLEEP = "import time; time.sleep(600)"
SHORT_LOG = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
# Ignores SIGTERM, and leaves a double-forked daemon in a session of its own.
NASTY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("daemon.pid.tmp", "w").write(str(os.getpid()))
        os.rename("daemon.pid.tmp", "daemon.pid")
        time.sleep(600)
    os._exit(0)
while not os.path.exists("daemon.pid"):
    time.sleep(0.01)
open("ready", "w").close()
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 600)
"""


def wait_for(condition, what="condition", timeout_s=10.0):
    """Poll until ``condition()`` is truthy and return its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {timeout_s} s")


class ShimFolder:
    """An attempt folder with a shim started in it."""

    def __init__(self, path: Path, scripts, *, cgroup="", fence_after_s=60.0, locks=()):
        self.path = path
        self.marker = f"{MARKER}={path}\0".encode()
        path.mkdir(parents=True, exist_ok=True)
        self.renew_lease()
        ranks = tuple(self._rank(number, script) for number, script in enumerate(scripts))
        launch = Launch(
            ranks=ranks,
            device_locks=tuple(str(lock) for lock in locks),
            cgroup=cgroup,
            fence_after_s=fence_after_s,
            grace_s=0.4,
            peer_grace_s=0.4,
        )
        (path / LAUNCH).write_text(json.dumps(launch.to_json()))
        self.process = None

    def start(self, secrets=None):
        """Start the shim; ``secrets`` come to it as from an agent, None: as from nobody."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "frenzy_orchestrator.shim", str(self.path)],
            start_new_session=True,
            stdin=subprocess.DEVNULL if secrets is None else subprocess.PIPE,
        )
        if secrets is not None:
            self.process.stdin.write(json.dumps(secrets).encode())
            self.process.stdin.close()
        return self

    def run_json(self):
        def started():
            found = self.read(RUN)
            return found if found and found["started"] else None

        return wait_for(started, "ranks started")

    def exit_json(self, timeout_s=10.0):
        wait_for(lambda: (self.path / EXIT).exists(), "exit.json", timeout_s)
        return self.read(EXIT)

    def read(self, name):
        path = self.path / name
        return json.loads(path.read_text()) if path.exists() else None

    def stop(self, grace_s=0.3):
        (self.path / STOP).write_text(json.dumps({"grace_s": grace_s, "reason": "ByUser"}))
        os.kill(self.process.pid, signal.SIGTERM)

    def renew_lease(self):
        (self.path / LEASE).write_text(str(procfs.boottime()))

    def living(self):
        return procfs.with_environment(self.marker)

    def destroy(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
        procfs.send(self.living(), signal.SIGKILL)

    def _rank(self, number, script):
        return RankLaunch(
            rank=number,
            argv=(sys.executable, "-c", script),
            env={"PATH": os.environ["PATH"], MARKER: str(self.path)},
            cwd=str(self.path),
            stdout=str(self.path / f"{number}.out"),
            stderr=str(self.path / f"{number}.err"),
        )


@contextmanager
def shim_folder(path: Path, scripts, **options) -> Iterator[ShimFolder]:
    """Start a shim on small Python scripts; kill whatever is left at the end."""
    folder = ShimFolder(path, scripts, **options)
    try:
        yield folder.start()
    finally:
        folder.destroy()


# -- an agent and a scripted control plane -----------------------------------------------------


def plan(devices=1):
    """A plan for an emulated device; only its environment and config reach ranks."""
    return resource_plan(
        devices=devices,
        precision=Precision.FP32,
        deepspeed_config={"train_batch_size": devices},
        environment={"FROM_PLAN": "yes"},
    )


def script_spec(workdir: Path, script="job.py", **fields):
    """A job that runs a script of a folder that is already on the node."""
    document = {
        "model": "gpt2",
        "global_batch_size": 1,
        "entrypoint": {"script": script},
        "workdir": f"node:{workdir}",
        **fields,
    }
    return JobSpec.model_validate(document)


def order(job="j1", attempt=1, phase=Phase.PREPARE, *, spec=None, ranks=None, **fields):
    """What the control plane wants of one attempt."""
    ranks = ranks or (RankAssignment(rank=0, local_rank=0, device="emu0"),)
    return DesiredAttempt(
        **{
            "job": job,
            "project": "default",
            "attempt": attempt,
            "phase": phase,
            "grace_s": 0.5,
            "world_size": len(ranks),
            "ranks": ranks,
            "hosts_rank_zero": any(rank.rank == 0 for rank in ranks),
            "spec": spec,
            "plan": plan(len(ranks)) if spec is not None else None,
            **fields,
        }
    )


class Controller:
    """Answers heartbeats with the orders it holds, and reads evidence back from the bus."""

    def __init__(self, broker: MemoryBroker):
        self.broker = broker
        self.bus = MemoryBus(broker)
        self.orders = {}
        self.epochs = {}
        self.answering = True
        self.fenced = False
        self.heartbeats = []
        self.over = {}

    async def start(self):
        await self.bus.serve("frenzy.v1.hb.*", self._answer)
        return self

    async def close(self):
        await self.bus.close()

    def want(self, node, *orders):
        self.orders.setdefault(node, {}).update({(o.job, o.attempt): o for o in orders})

    async def push(self, node, *orders):
        self.want(node, *orders)
        pushed = DesiredSet(
            node=node, epoch=self.epochs.get(node, 1), complete=False, attempts=orders
        )
        await self.bus.emit(subjects.desired(node), pushed.encode())

    def evidence(self, kind=None, job=None, node=None):
        found = [Evidence.decode(m.payload) for m in self.broker.messages(subjects.EVIDENCE_STREAM)]
        return [
            entry
            for entry in found
            if (kind is None or entry.kind is kind)
            and (job is None or entry.job == job)
            and (node is None or entry.node == node)
        ]

    def lines(self, job="j1", attempt=1, rank=0):
        prefix = subjects.log("default", job, attempt, rank)
        return [
            line
            for message in self.broker.messages(subjects.LOGS_STREAM)
            if message.subject == prefix
            for line in LogBatch.decode(message.payload).lines
        ]

    async def seen(self, kind, job="j1", node=None, count=1, timeout_s=15.0):
        """Wait for evidence and return its last piece."""

        def enough():
            found = self.evidence(kind, job, node)
            return found[-1] if len(found) >= count else None

        return await eventually(enough, f"{kind} of {job}", timeout_s)

    async def start_job(self, node, prepare):
        """PREPARE, then GO with the rendezvous that came back; return the STARTED evidence."""
        await self.push(node, prepare)
        prepared = await self.seen(EvidenceKind.PREPARED, prepare.job, node)
        go = prepare.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
        await self.push(node, go)
        return await self.seen(EvidenceKind.STARTED, prepare.job, node)

    async def stop_job(self, node, given, reason="ByUser"):
        stop = given.model_copy(
            update={"phase": Phase.STOP, "reason": reason, "spec": None, "plan": None}
        )
        await self.push(node, stop)

    async def _answer(self, message):
        heartbeat = Heartbeat.decode(message.payload)
        self.heartbeats.append(heartbeat)
        if not self.answering:
            return None
        node = heartbeat.node
        if heartbeat.epoch == 0:
            self.epochs[node] = self.epochs.get(node, 0) + 1
        orders = tuple(self.orders.get(node, {}).values())
        return DesiredSet(
            node=node,
            epoch=self.epochs[node],
            fenced=self.fenced,
            attempts=orders,
            over={job: self.over[job] for job in heartbeat.checkpoints if job in self.over},
        ).encode()


class RunningAgent:
    """One agent in this process, with real shims and ranks."""

    def __init__(self, broker, data_dir, node="node-a", programs=SCRIPTS, **settings):
        fields = {
            "node": node,
            "address": "127.0.1.1",
            "data_dir": data_dir,
            "emulated_devices": "emulated-small:2:64MiB:1.0",
            "heartbeat_s": 0.2,
            "stop_grace_s": 0.5,
            "peer_grace_s": 0.5,
            "fence_after_s": 60.0,
            "cgroups": False,
            "min_free_bytes": 0,
            **settings,
        }
        self.settings = OrchestratorSettings(**fields)
        self.programs = programs
        self.bus = MemoryBus(broker)
        self.telemetry = configure("orchestrator", self.settings)
        self.stop = asyncio.Event()
        self.tasks = []

    async def start(self):
        self.agent = assemble(self.settings, self.bus, self.telemetry, self.programs)
        loops = (self.agent.heartbeats, self.agent.evidence)
        self.tasks = [asyncio.ensure_future(loop(self.stop)) for loop in loops]
        await eventually(lambda: self.agent.epoch or self.tasks[0].done(), "registered")
        return self

    async def leave(self):
        """SIGTERM: the loops end, what runs keeps running."""
        self.stop.set()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.bus.close()
        self.telemetry.close()
        return results

    def folder(self, job="j1", attempt=1):
        return self.settings.data_dir / "attempts" / f"{job}.{attempt}"

    def run_json(self, job="j1", attempt=1):
        return json.loads((self.folder(job, attempt) / RUN).read_text())

    def living(self):
        return processes_of(self.settings.data_dir)


def processes_of(data_dir: Path):
    """Every process that any attempt below a data folder has left, its shims included."""
    ranks = procfs.with_environment(f"{MARKER}={data_dir}/attempts/".encode())
    shims = [found for path in data_dir.glob("attempts/*/run.json") if (found := _shim_of(path))]
    return [*ranks, *shims]


def _shim_of(run_file: Path):
    run = json.loads(run_file.read_text())
    alive = procfs.is_alive(run["shim"], run["shim_start"])
    return procfs.stat(run["shim"]) if alive else None


async def eventually(condition, what="condition", timeout_s=15.0):
    """Poll without blocking the loop until ``condition()`` is truthy; return its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what}: not within {timeout_s} s")


class Cluster:
    """A scripted control plane and any number of agents, cleaned up at the end."""

    def __init__(self, root: Path):
        self.root = root
        self.broker = MemoryBroker()
        self.control = Controller(self.broker)
        self.agents = []

    async def agent(self, node="node-a", **settings):
        running = RunningAgent(self.broker, self.root / node, node=node, **settings)
        self.agents.append(running)
        return await running.start()

    def script(self, text, name="job.py"):
        """A work folder with one script."""
        folder = self.root / "work" / str(len(list(self.root.glob("work/*"))))
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
        return script_spec(folder, name)

    async def close(self):
        for running in self.agents:
            await running.leave()
        await self.control.close()
        for _ in range(50):  # kill shims first: they would record an ending otherwise
            left = [p for path in self.root.glob("*") for p in processes_of(path)]
            if not left:
                return
            procfs.send(left, signal.SIGKILL)
            reap()
            await asyncio.sleep(0.02)
        raise AssertionError(f"processes left behind: {left}")


def reap():
    """Collect shims that a test's own agent started: it is this process's child."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return
