"""The real gateway process on a real NATS and Valkey."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.nats import NatsServer, fresh_nats_server, nats_server, nats_url
from tests.support.valkey import ValkeyProcess, fresh_valkey, valkey, valkey_server

from frenzy_shared.auth import new_token
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.state.redis import RedisStore

__all__ = [
    "fresh_nats_server",
    "fresh_valkey",
    "nats_server",
    "nats_url",
    "valkey",
    "valkey_server",
]

SPEC: dict[str, Any] = {"model": "gpt2", "data": "node:/data/text", "global_batch_size": 8}
ADMIN = new_token()


class GatewayProcess:
    """``python -m frenzy_gateway`` with its log in a file."""

    def __init__(self, folder: Path, nats: str, redis: str, **settings: str) -> None:
        self.log = folder / f"gateway-{new_token().id}.log"
        environment = {
            **os.environ,
            "FRENZY_NATS_URL": nats,
            "FRENZY_REDIS_URL": redis,
            "FRENZY_DATA_DIR": str(folder),
            "FRENZY_HTTP_PORT": "0",
            "FRENZY_ADMIN_TOKEN": ADMIN.text,
            "FRENZY_MARP_TIMEOUT_S": "0.3",
            "FRENZY_TRACE_FILE": str(folder / "trace.jsonl"),
            **{f"FRENZY_{name.upper()}": value for name, value in settings.items()},
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "frenzy_gateway"], env=environment, stderr=log
            )
        self.port = 0

    async def ready(self) -> "GatewayProcess":
        """Wait until it says where it listens."""
        for _ in range(600):
            for line in self.log.read_text().splitlines():
                entry = json.loads(line) if line.startswith("{") else {}
                if "http_port" in entry:
                    self.port = entry["http_port"]
                    return self
            assert self.process.poll() is None, self.log.read_text()
            await asyncio.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def client(self, token: str = ADMIN.text) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=20,
        )

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self, timeout_s: float = 15) -> int:
        return await asyncio.to_thread(self.process.wait, timeout_s)


Start = Callable[..., GatewayProcess]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Start]:
    """Start gateways that do not outlive the test."""
    started: list[GatewayProcess] = []

    def start(nats: str, redis: str, **settings: str) -> GatewayProcess:
        started.append(GatewayProcess(tmp_path, nats, redis, **settings))
        return started[-1]

    yield start
    for gateway in started:
        if gateway.process.poll() is None:
            gateway.process.kill()
        gateway.process.wait(10)


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """The session's NATS with its streams, as another service sees it."""
    bus = await NatsBus.connect(nats_url, name="test")
    await bus.ensure_streams()
    yield bus
    await bus.close()


@pytest.fixture
async def store(valkey: ValkeyProcess) -> AsyncIterator[RedisStore]:
    store = await RedisStore.open(valkey.url)
    yield store
    await store.close()


@pytest.fixture
async def gateway(
    processes: Start, bus: NatsBus, nats_server: NatsServer, valkey: ValkeyProcess
) -> GatewayProcess:
    return await processes(nats_server.url, valkey.url).ready()


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.client() as client:
        yield client
