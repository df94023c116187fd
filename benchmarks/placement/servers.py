"""The control plane as processes on real servers, and proof that the servers are durable."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    def services(self) -> Iterator[None]:
        """Run gateway, MARP and scheduler until the block ends."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FRENZY_")},
            "FRENZY_NATS_URL": self.nats.url,
            "FRENZY_REDIS_URL": self.valkey.url,
            "FRENZY_DATA_DIR": str(self.folder),
            "FRENZY_ADMIN_TOKEN": self.token,
            "FRENZY_HTTP_PORT": self.api.rpartition(":")[2],
        }
        running = []
        try:
            for name in ("gateway", "marp", "scheduler"):
                with (self.folder / f"{name}.log").open("wb") as log:
                    command = [sys.executable, "-m", f"frenzy_{name}"]
                    running.append(
                        subprocess.Popen(command, env=environment, stdout=log, stderr=log)
                    )
            self._wait_until_ready()
            yield
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(15)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.api}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise RuntimeError((self.folder / "gateway.log").read_text()[-2000:])


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
