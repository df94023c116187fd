"""A whole system as an operator has it: `frenzy up` under its own supervisor, joined nodes.

The control plane is on one host and every node on its own, in network namespaces; nodes enrol
with one-time tokens and speak TLS. Disks are small ones. All of this needs root. The supervisor
is started again whenever it ends, and so are agents, as systemd would do.
"""

import contextlib
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import httpx
from tests.support.deployment import ROOT, TIMING, Deployment, Service
from tests.support.disks import SmallDisk
from tests.support.network import Network

from frenzy.local import control, credentials, identities, joining
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.ports import free_ports
from frenzy.local.processes import ProcessMark
from frenzy.local.status import Status
from frenzy_orchestrator.shim import procfs
from frenzy_shared.blobs import bundle
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole
from frenzy_shared.crashpoints import EXIT_CODE, VARIABLE
from frenzy_shared.units import GIB, MIB

HEAD: Final = "head"
SUPERVISOR: Final = "supervisor"
SUPERVISED: Final = ("gateway", "marp", "nats", "scheduler-1", "scheduler-2", "valkey")
_HEAD_DISK_BYTES: Final = 2 * GIB
_NODE_DISK_BYTES: Final = 96 * MIB
_ENDED = re.compile(r"(\S+) ended with exit code (-?\d+)$")
_OURS: Final = frozenset({EXIT_CODE, -signal.SIGKILL})
# A server ends on a full disk, a service that finds no server at its start says so and ends.
_TOLERATED: Final = {0, 1}
_WORSE: Final = ('"level": "CRITICAL"', "Traceback (most recent call last)")
# A supervisor takes a while to have everything again; nodes must not count as dead meanwhile.
_TIMING: Final = {**TIMING, "FENCE_AFTER_S": "25", "LOST_AFTER_S": "30", "MARP_TIMEOUT_S": "1"}


class Installed(Deployment):
    """One control plane and its nodes. The calling thread must be on the host ``HEAD``."""

    def __init__(self, folder: Path, network: Network, nodes: tuple[str, ...], devices: int):
        self.folder = folder
        self.network = network
        self.nodes = nodes
        self.armed = folder / "crashpoints"
        self.records = folder / "records"
        self.workdir = folder / "workdir"
        for made in (self.armed, self.records, self.workdir):
            made.mkdir(parents=True)
        shutil.copy(ROOT / "tests/support/rank.py", self.workdir)
        self.layout = Layout(folder / "frenzy")
        self.timing = _TIMING
        self.submissions = []
        self.services = {}
        self.supervisor_exits: list[int] = []
        self.disks = {
            HEAD: SmallDisk(self.layout.root, _HEAD_DISK_BYTES),
            **{n: SmallDisk(folder / "nodes" / n, _NODE_DISK_BYTES) for n in nodes},
        }
        self._devices = f"emulated-a100-40:{devices}:256MiB:1.0"
        self._ending = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> "Installed":
        for disk in self.disks.values():
            disk.mount()
        http_port, bus_port = free_ports(2)
        host = self.network.address(HEAD)
        self._bus_url = f"tls://{host}:{bus_port}"
        self.url = f"https://{host}:{http_port}"
        settings = {f"FRENZY_{key}": value for key, value in self.timing.items()}
        options = Options(
            port=http_port,
            listen=host,
            bus_port=bus_port,
            replicas={"scheduler": 2},
            settings={**settings, VARIABLE: str(self.armed)},
        )
        control.prepare(self.layout, options)
        self._process = control.start(self.layout)
        control.wait_ready(self.layout, lambda _: None, self._process)
        self.token = SimpleNamespace(text=credentials.load_or_make(self.layout).admin_token)
        trust = ssl.create_default_context(cafile=str(self.layout.authority))
        self.http = httpx.Client(verify=trust)
        self.code = self.upload(self.workdir)
        for node in self.nodes:
            self.services[node] = self._join(node)
            self.services[node].start()
        self._supervisor.start()
        self.until(lambda: set(self.node_states()) == set(self.nodes), "the nodes register", 180)
        self.until(lambda: set(self.node_states().values()) == {"UP"}, "every node is UP", 180)
        return self

    def leave(self) -> list[str]:
        """End everything as an operator does; return the processes that are left all the same."""
        self._ending.set()
        self._supervisor.join()
        self._process.send_signal(signal.SIGTERM)
        for service in self.services.values():
            service.process.send_signal(signal.SIGTERM)
        for process in (self._process, *(s.process for s in self.services.values())):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
        return self._processes()

    def stop(self) -> None:
        """Kill whatever is there, and take the disks away."""
        self._ending.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        deadline = time.monotonic() + 20
        while (left := self._processes()) and time.monotonic() < deadline:
            for line in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line.split()[0]), signal.SIGKILL)
            time.sleep(0.1)
        shutil.copytree(self.layout.logs, self.folder / "logs", dirs_exist_ok=True)
        for disk in self.disks.values():
            disk.unmount()

    # -- doors --------------------------------------------------------------------------------

    @property
    def bus_access(self) -> Access:
        key = identities.key_file(self.layout.keys, BusRole.ADMIN)
        return Access(url=self._bus_url, nkey=key, ca=self.layout.authority)

    @property
    def store_url(self) -> str:
        """Return the store's URL; its port is another one with every supervisor."""
        configuration = (self.layout.configs / "valkey.conf").read_text()
        (port,) = re.findall(r"^port (\d+)$", configuration, re.MULTILINE)
        password = credentials.load_or_make(self.layout).redis_password
        return f"redis://{credentials.STORE_ADMIN}:{password}@127.0.0.1:{port}/0"

    @property
    def names(self) -> list[str]:
        return sorted((*SUPERVISED, *self.nodes))

    # -- use ----------------------------------------------------------------------------------

    def submit(self, key: str, **fields) -> str:
        return super().submit(key, **{"workdir": f"blob:{self.code}", **fields})

    def upload(self, path: Path) -> str:
        """Store a folder as a bundle and return its digest."""
        archive = self.folder / f"{path.name}.tar"
        digest = bundle.pack(path, archive)
        self._ask("PUT", f"/blobs/{digest}", 60, content=archive.read_bytes())
        return digest

    # -- breaking -----------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        self.send(name, signal.SIGKILL)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a service, or to the supervisor; nothing if it does not run."""
        if (mark := self.marks().get(name)) is not None:
            mark.send(number)

    # -- looking ------------------------------------------------------------------------------

    def marks(self) -> dict[str, ProcessMark]:
        """Return every process of the system that runs now, by name."""
        status = Status.read(self.layout.status)
        found = {child.name: child.mark for child in status.children} if status else {}
        found[SUPERVISOR] = ProcessMark.of(self._process.pid)
        for name, service in self.services.items():
            found[name] = ProcessMark.of(service.process.pid)
        return {name: mark for name, mark in found.items() if mark is not None}

    def unexpected_exits(self) -> dict[str, list[int]]:
        ends = super().unexpected_exits()
        log = self.layout.log(SUPERVISOR).read_text(errors="replace")
        told = (found.groups() for line in log.splitlines() if (found := _ENDED.search(line)))
        for name, code in (*told, *((SUPERVISOR, code) for code in self.supervisor_exits)):
            ends.setdefault(name, []).extend({int(code)} - _OURS)
        ends = {name: [c for c in codes if c not in _TOLERATED] for name, codes in ends.items()}
        return {name: codes for name, codes in ends.items() if codes}

    def complaints(self) -> list[str]:
        """Return what services ended over that they should have lived with, from their logs."""
        logs = (*self.layout.logs.glob("*.log"), *self.folder.glob("*.log"))
        return [
            f"{log.name}: {line}"
            for log in sorted(logs)
            for line in log.read_text(errors="replace").splitlines()
            if line.startswith(_WORSE[1]) or _WORSE[0] in line
        ]

    def logs(self, lines: int = 25) -> str:
        parts = [super().logs(lines)]
        for log in sorted(self.layout.logs.glob("*.log")):
            parts += [f"== {log.name}", *log.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(parts)

    # -- inside -------------------------------------------------------------------------------

    def _join(self, node: str) -> Service:
        """Enrol a node with a one-time token and return its agent."""
        token = self._ask("POST", "/nodes:token", 60, json={"node": node})["token"]
        home = joining.NodeFolder(self.folder / "joined" / node)
        member = joining.join(home, self.url, token, node)
        (home.root / "tmp").mkdir()
        settings = {
            **self.timing,
            "EMULATED_DEVICES": self._devices,
            "ADDRESS": self.network.address(node),
            "CHECKPOINTS_DIR": str(self.folder / "checkpoints"),
            "DATA_DIR": str(self.folder / "nodes" / node),
            "MIN_FREE_BYTES": str(8 * MIB),
            "CGROUPS": "false",
        }
        env = joining.agent_environment(
            home, member, {f"FRENZY_{k}": v for k, v in settings.items()}
        )
        env |= {VARIABLE: str(self.armed), "PYTHONPATH": str(ROOT)}
        argv = self.network.command(node, [sys.executable, "-m", "tests.support.script_agent"])
        return Service(name=node, argv=argv, env=env, log=self.folder / f"{node}.log")

    def _supervise(self) -> None:
        """Start agents and the supervisor again; on a full disk try until it works."""
        while not self._ending.wait(0.05):
            for service in self.services.values():
                code = service.process.poll()
                if code is not None:
                    service.exits.append(code)
                    service.start()
            if (code := self._process.poll()) is not None:
                with contextlib.suppress(OSError):
                    self._process = control.start(self.layout)
                    self.supervisor_exits.append(code)

    def _processes(self) -> list[str]:
        """Return what runs for this folder, by command, environment or working folder."""
        mark = str(self.folder).encode()
        found = []
        for pid in procfs.pids():
            with contextlib.suppress(OSError):
                entry = Path(f"/proc/{pid}")
                command = (entry / "cmdline").read_bytes()
                seen = command + (entry / "environ").read_bytes()
                seen += os.fsencode(os.readlink(entry / "cwd"))
                process = procfs.stat(pid)
                if mark in seen and process is not None and process.state not in "ZX":
                    words = command.replace(b"\0", b" ").decode(errors="replace")
                    found.append(f"{pid} {words}")
        return [line for line in found if int(line.split()[0]) != os.getpid()]
