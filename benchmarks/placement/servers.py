"""The control plane as processes on real servers, and proof that the servers are durable."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.support.nats import NatsServer, free_port
from tests.support.valkey import ValkeyProcess

from frenzy_shared.auth import new_token


@dataclass(frozen=True)
class ControlPlane:
    """Where everything is."""

    nats: NatsServer
    valkey: ValkeyProcess
    monitor_port: int
    api: str
    token: str
    folder: Path

    def durability(self) -> dict[str, object]:
        """Read both servers' settings back from the servers themselves."""
        with self.valkey.client() as client:
            redis = {
                **client.config_get("appendonly"),
                **client.config_get("appendfsync"),
                "version": client.info("server").get("valkey_version", ""),
            }
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor_port}/jsz") as reply:
            jetstream = json.load(reply)
        return {"valkey": redis, "jetstream": jetstream["config"]}

    @contextmanager
    def services(
        self, *, gateways: int = 1, marps: int = 1, schedulers: int = 1, **settings: str
    ) -> Iterator["Services"]:
        """Run replicas of gateway, MARP and scheduler until the block ends.

        ``settings`` are FRENZY_* variables in lower case, without the prefix.
        """
        counts = {"gateway": gateways, "marp": marps, "scheduler": schedulers}
        services = Services(plane=self, settings=settings)
        try:
            for name, count in counts.items():
                for number in range(count):
                    services.start(name, number)
            services.wait_until_ready()
            yield services
        finally:
            services.stop()


@dataclass(frozen=True)
class Services:
    """The running replicas by name, "marp-0" for the first of MARP."""

    plane: ControlPlane
    settings: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)  # of the gateways

    def start(self, service: str, number: int) -> None:
        """Start one replica, again on its own port if it ran before."""
        plane, name = self.plane, f"{service}-{number}"
        if service == "gateway":
            first = int(plane.api.rpartition(":")[2])
            self.ports.setdefault(name, first if number == 0 else free_port())
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FRENZY_")},
            "OMP_NUM_THREADS": "1",
            "FRENZY_NATS_URL": plane.nats.url,
            "FRENZY_REDIS_URL": plane.valkey.url,
            "FRENZY_DATA_DIR": str(plane.folder),
            "FRENZY_ADMIN_TOKEN": plane.token,
            "FRENZY_HTTP_PORT": str(self.ports.get(name, 0)),
            "FRENZY_INSTANCE": name,
            **{f"FRENZY_{key.upper()}": value for key, value in self.settings.items()},
        }
        with (plane.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", f"frenzy_{service}"]
            self.running[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        """End all replicas."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def cpu_s(self, service: str) -> float:
        """Return the processor seconds that the replicas of a service have used."""
        return sum(
            cpu_s(process.pid)
            for name, process in self.running.items()
            if name.rpartition("-")[0] == service and process.poll() is None
        )

    def wait_until_ready(self) -> None:
        """Wait until every gateway accepts jobs and every other replica serves its metrics."""
        for name in self.running:
            self._wait(name)

    def _wait(self, name: str) -> None:
        log = self.plane.folder / f"{name}.log"
        deadline = time.monotonic() + 300  # a busy machine takes minutes to start them all
        while time.monotonic() < deadline:
            if name not in self.ports:
                if "metrics on port" in log.read_text():
                    return
            else:
                try:
                    if httpx.get(f"http://127.0.0.1:{self.ports[name]}/readyz").is_success:
                        return
                except httpx.TransportError:
                    pass
            time.sleep(0.1)
        raise RuntimeError(log.read_text()[-2000:])


def cpu_s(pid: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Start both servers with the configuration that ships."""
    monitor = free_port()
    nats = NatsServer(folder / "nats", options=("-m", str(monitor)))
    (folder / "valkey").mkdir()
    valkey = ValkeyProcess(folder / "valkey")
    nats.start()
    valkey.start()
    try:
        yield ControlPlane(
            nats=nats,
            valkey=valkey,
            monitor_port=monitor,
            api=f"http://127.0.0.1:{free_port()}",
            token=new_token().text,
            folder=folder,
        )
    finally:
        valkey.stop()
        nats.stop()
