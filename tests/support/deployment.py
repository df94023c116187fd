"""The whole system as processes: real servers, real services, and a small supervisor.

Everything is sequential for the test: submit, break something, wait, read the history.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import redis
from tests.support.history import KEY_LABEL, Submission
from tests.support.nats import NatsServer
from tests.support.nats import free_port as port
from tests.support.valkey import ValkeyProcess

from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.launch import MARKER
from frenzy_shared.auth import new_token
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.crashpoints import EXIT_CODE, VARIABLE
from frenzy_shared.domain.job import JobState

ROOT = Path(__file__).resolve().parents[2]
NODES = ("node-a", "node-b", "node-c")
DEVICES_PER_NODE = 2
OVER = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
_TOO_MANY = httpx.codes.TOO_MANY_REQUESTS

# Everything that waits, waits a fraction of its default; relations between limits are kept.
TIMING = {
    "HEARTBEAT_S": "0.8",
    "SUSPECT_AFTER_S": "6",
    "LOST_AFTER_S": "18",  # a busy machine takes 14 s to start three agents again
    "FENCE_AFTER_S": "15",
    "FENCE_MARGIN_S": "5",
    "PREPARE_TIMEOUT_S": "30",
    "GO_TIMEOUT_S": "30",
    "STOP_GRACE_S": "2",
    "PEER_GRACE_S": "2",
    "BACKOFF_BASE_S": "0.3",
    "BACKOFF_MAX_S": "2",
    "LEASE_TTL_S": "2",
    "LEASE_RENEW_S": "0.4",
    "RESCAN_S": "0.7",
    "TIMER_POLL_S": "0.2",
    "LIVENESS_POLL_S": "0.3",
    "ACK_WAIT_S": "2",
    "EVIDENCE_WAIT_S": "30",
    "REFRESH_S": "1",
    "STRIKES": "0",  # what tests kill refuses launches without being broken
}


@dataclass
class Service:
    """One supervised process. ``exits`` are the codes of its earlier lives."""

    name: str
    argv: list[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    exits: list[int] = field(default_factory=list)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, env=self.env, cwd=ROOT, stdout=log, stderr=log
            )


class Deployment:
    """One system on one machine, in folders of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        schedulers: int = 1,
        timing: dict[str, str] | None = None,
        bus_host: str = "127.0.0.1",
    ):
        self.folder = folder
        self.armed = folder / "crashpoints"
        self.records = folder / "records"
        self.workdir = folder / "workdir"
        for made in (self.armed, self.records, self.workdir, folder / "valkey"):
            made.mkdir(parents=True)
        (self.workdir / "rank.py").write_bytes((ROOT / "tests/support/rank.py").read_bytes())
        self.token = new_token()
        self.url = f"http://127.0.0.1:{port()}"
        self.valkey = ValkeyProcess(folder / "valkey")
        self.nats = NatsServer(folder / "nats", host=bus_host)
        self.timing = {**TIMING, **(timing or {})}
        self.submissions: list[Submission] = []
        self.http = httpx.Client()
        self.services = {service.name: service for service in self._services(schedulers)}
        self._ending = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> "Deployment":
        self.valkey.start()
        self.nats.start()
        self.make_streams()
        for service in self.services.values():
            service.start()
        self._supervisor.start()
        self.until(lambda: set(self.node_states()) == set(NODES), "the nodes register", 180)
        self.until(lambda: set(self.node_states().values()) == {"UP"}, "every node is UP", 180)
        return self

    def stop(self) -> None:
        """End everything; whatever the ranks and shims left is killed too."""
        self._ending.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        for service in self.services.values():
            if service.process is not None:
                service.process.kill()
                service.process.wait()
        self.http.close()
        for server in (self.valkey, self.nats):
            with contextlib.suppress(AssertionError, ProcessLookupError):
                os.kill(server_pid(server), signal.SIGCONT)
            server.stop()
        deadline = time.monotonic() + 10
        while (left := self.left_processes()) and time.monotonic() < deadline:
            procfs.send(left, signal.SIGKILL)
            time.sleep(0.05)

    def __enter__(self) -> "Deployment":
        try:
            return self.start()
        except BaseException:
            print(self.logs())
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def make_streams(self) -> None:
        """Create the streams that are missing, as `frenzy up` does."""

        async def make() -> None:
            bus = await NatsBus.connect(self.nats.url, name="test")
            await bus.ensure_streams()
            await bus.close()

        asyncio.run(make())

    # -- doors: where those who only look come in --------------------------------------------

    @property
    def bus_access(self) -> Access | str:
        return self.nats.url

    @property
    def store_url(self) -> str:
        return self.valkey.url

    @property
    def names(self) -> list[str]:
        """Return the services that can be killed and frozen."""
        return sorted(self.services)

    # -- use ----------------------------------------------------------------------------------

    def submit(
        self,
        key: str,
        *,
        ranks: int = 1,
        seconds: float = 0.3,
        later_seconds: float | None = None,
        within_s: float = 120,
        env: dict[str, str] | None = None,
        **fields: object,
    ) -> str:
        """Submit until there is an answer, as a client does that keeps its key over retries.

        Ranks live for ``seconds``, those of later attempts for ``later_seconds`` if given.
        """
        times = {"TEST_SECONDS": str(seconds), "TEST_LATER_SECONDS": str(later_seconds or seconds)}
        spec = {
            "name": key,
            "model": "gpt2-tiny",
            "sequence_length": 64,
            "global_batch_size": ranks,
            "entrypoint": {"script": "rank.py"},
            "workdir": f"node:{self.workdir}",
            "env": {"TEST_RECORDS": str(self.records), **times, **(env or {})},
            "resources": {"gpus": ranks},
            "retry": {"max_retries": 50},
            "labels": {KEY_LABEL: key},
            **fields,
        }
        answer = self._ask("POST", "/jobs", within_s, json=spec, headers={"Idempotency-Key": key})
        job: str = answer["id"]
        self.submissions.append(Submission(key=key, body=json.dumps(spec), job=job))
        return job

    def cancel(self, job: str) -> bool:
        """Cancel a job; False when it is over."""
        try:
            self._ask("POST", f"/jobs/{job}:cancel", 120)
        except httpx.HTTPStatusError as refused:
            if refused.response.status_code != httpx.codes.CONFLICT:
                raise
            return False
        return True

    def job(self, job: str) -> dict:
        return self._ask("GET", f"/jobs/{job}", 120)

    def finished(self, job: str, within_s: float = 120) -> dict:
        """Wait for a job's end and return it."""
        self.until(lambda: self.job(job)["state"] in OVER, f"the end of {job}", within_s)
        return self.job(job)

    def node_states(self) -> dict[str, str]:
        answer = self._ask("GET", "/nodes", 180)
        return {node["id"]: node["state"] for node in answer["nodes"]}

    def until(self, condition, what: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {within_s:.0f} s"
            time.sleep(0.1)

    def leader(self) -> str:
        """Return which scheduler holds the lease; "" when none does."""
        with self.valkey.client() as client:
            return client.get("{frenzy}:lease:control") or ""

    def unfinished(self) -> int:
        """Return how many accepted jobs have not ended, as the store counts them.

        Raises:
            redis.exceptions.RedisError: the store does not answer.
        """
        with redis.Redis.from_url(self.store_url, socket_timeout=5) as store:
            return sum(
                store.zcard(f"{{frenzy}}:state:{state}") for state in JobState if state not in OVER
            )

    # -- breaking -----------------------------------------------------------------------------

    def arm(self, point: str) -> None:
        """Let the next process that gets to a crash point die there."""
        (self.armed / point).touch()

    def disarm(self, point: str) -> None:
        (self.armed / point).unlink(missing_ok=True)

    def struck(self, point: str) -> bool:
        return not (self.armed / point).exists()

    def kill(self, name: str) -> None:
        if (server := self._server(name)) is not None:
            server.kill()
            server.start()
        else:
            self.send(name, signal.SIGKILL)

    def send(self, name: str, number: signal.Signals) -> None:
        server = self._server(name)
        self.send_to(server_pid(server) if server is not None else self._pid(name), number)

    def send_to(self, pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def shims(self, job: str = "*") -> list[int]:
        """Return the shims that live now, of one job or of all."""
        found = []
        for path in self.folder.glob(f"nodes/*/attempts/{job}.*/run.json"):
            with contextlib.suppress(OSError, ValueError):
                run = json.loads(path.read_text())
                if procfs.is_alive(run["shim"], run["shim_start"]):
                    found.append(run["shim"])
        return found

    def ranks(self) -> list[procfs.ProcessStat]:
        """Return the ranks that live now, with all that they have started."""
        return procfs.with_environment(f"{MARKER}={self.folder}/".encode())

    # -- looking ------------------------------------------------------------------------------

    def left_processes(self) -> list[procfs.ProcessStat]:
        """Return ranks and shims of any attempt that still live."""
        shims = (procfs.stat(pid) for pid in self.shims())
        return [*self.ranks(), *(shim for shim in shims if shim is not None)]

    def unexpected_exits(self) -> dict[str, list[int]]:
        """Return how services ended by themselves: neither killed nor at a crash point."""
        ours = {EXIT_CODE, -signal.SIGKILL}
        ends = {name: [c for c in s.exits if c not in ours] for name, s in self.services.items()}
        return {name: codes for name, codes in ends.items() if codes}

    def logs(self, lines: int = 25) -> str:
        parts = []
        for log in sorted(self.folder.glob("*.log")):
            parts += [f"== {log.name}", *log.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(parts)

    # -- inside -------------------------------------------------------------------------------

    def _services(self, schedulers: int):
        names = ["scheduler", *(f"scheduler-{n}" for n in range(2, schedulers + 1))]
        yield self._service("marp", "frenzy_marp")
        for name in names:
            yield self._service(name, "frenzy_scheduler")
        gateway = {
            "HTTP_PORT": self.url.rpartition(":")[2],
            "ADMIN_TOKEN": self.token.text,
            "MARP_TIMEOUT_S": "1",
        }
        yield self._service("gateway", "frenzy_gateway", **gateway)
        for number, node in enumerate(NODES, start=1):
            agent = {
                "NODE": node,
                "ADDRESS": f"127.0.1.{number}",
                "EMULATED_DEVICES": f"emulated-a100-40:{DEVICES_PER_NODE}:256MiB:1.0",
                "CHECKPOINTS_DIR": str(self.folder / "checkpoints"),
                "DATA_DIR": str(self.folder / "nodes" / node),
                "MIN_FREE_BYTES": "0",
                "CGROUPS": "false",
            }
            yield self._service(node, "tests.support.script_agent", **agent)

    def _service(self, name: str, module: str, **settings: str) -> Service:
        common = {
            "NATS_URL": self.nats.url,
            "REDIS_URL": self.valkey.url,
            "INSTANCE": name,
            "DATA_DIR": str(self.folder / "data"),
            "BLOBS": str(self.folder / "blobs"),
            **self.timing,
            **settings,
        }
        env = {k: v for k, v in os.environ.items() if not k.startswith("FRENZY_")}
        env |= {f"FRENZY_{key}": value for key, value in common.items()}
        env |= {VARIABLE: str(self.armed), "PYTHONPATH": _path(env.get("PYTHONPATH", ""))}
        argv = [sys.executable, "-m", module]
        return Service(name=name, argv=argv, env=env, log=self.folder / f"{name}.log")

    def _supervise(self) -> None:
        """Start again whatever ended, as any process supervisor does."""
        while not self._ending.wait(0.05):
            for service in self.services.values():
                code = service.process.poll()
                if code is not None:
                    service.exits.append(code)
                    service.start()

    def _ask(self, verb: str, path: str, within_s: float, **options) -> dict:
        headers = {"Authorization": f"Bearer {self.token.text}", **options.pop("headers", {})}
        deadline = time.monotonic() + within_s
        while True:
            try:
                url = f"{self.url}/api/v1{path}"
                answer = self.http.request(verb, url, headers=headers, timeout=10, **options)
                if answer.status_code < 500 and answer.status_code != _TOO_MANY:
                    answer.raise_for_status()
                    return answer.json()
                seen = answer.text
            except httpx.TransportError as error:
                seen = repr(error)
            assert time.monotonic() < deadline, f"{verb} {path}: {seen}"
            time.sleep(0.1)

    def _server(self, name: str) -> ValkeyProcess | NatsServer | None:
        return {"valkey": self.valkey, "nats": self.nats}.get(name)

    def _pid(self, name: str) -> int:
        process = self.services[name].process
        assert process is not None
        return process.pid


def _path(given: str) -> str:
    return f"{ROOT}:{given}" if given else str(ROOT)


def server_pid(server: ValkeyProcess | NatsServer) -> int:
    process = server._process
    assert process is not None
    return process.pid
