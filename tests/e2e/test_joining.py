"""Another machine joins over TLS with a one-time token, runs a job, and is shut out again.

The other machine is another installation here; a second loopback address stands for the network.
"""

import contextlib
import os
import signal
import socket
import time

import pytest
import yaml
from tests.support.installation import Installation

HEAD = "127.0.0.2"
SCRIPT = """
import frenzy_trainer as ft
print("trained on", ft.plan()["plan"]["kind"])
ft.report(step=1, loss=1.0, tokens=64)
"""


@pytest.fixture
def head(tmp_path):
    installation = Installation(tmp_path / "head")
    yield installation
    installation.attempt("down")


@pytest.fixture
def worker(tmp_path):
    installation = Installation(tmp_path / "worker")
    yield installation
    for pid in installation.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_machine_joins_trains_and_is_shut_out(head, worker):
    port, bus = free_ports()
    url = f"https://{HEAD}:{port}"
    emulated = ("--emulated", "head:emulated-a100-40:1:256MiB:1.0")
    head.run("up", "--listen", HEAD, "--port", str(port), "--bus-port", str(bus), *emulated)
    token = head.json("node", "token", "--node", "worker")["token"]

    agent = join(worker, url, token, "worker")
    wait_for(lambda: states(head).get("worker") == "UP", "the node comes up")
    job = submit(head)
    head.run("wait", job, "--timeout", "100s", timeout=120)
    assert "trained on emulated-worker" in head.run("logs", job).stdout

    again = join(worker, url, token, "worker", "--data", str(worker.home / "again"))
    refused = again.communicate(timeout=60)[1]
    assert again.returncode == 1
    assert "not valid: unknown, used, expired" in refused
    assert "frenzy node token" in refused

    head.run("node", "revoke", "worker")
    said = agent.communicate(timeout=60)[1]
    assert agent.returncode == 1
    assert "NATS refuses this service" in said
    assert worker.run("node", "run", code=2).stderr.count("NATS refuses this service") == 1


@pytest.mark.slow
def test_what_a_machine_must_not_trust_or_send(head, worker):
    port, bus = free_ports()
    head.run("up", "--listen", HEAD, "--port", str(port), "--bus-port", str(bus))
    token = head.run("node", "token", "-q").stdout.strip()
    fingerprint = token.rpartition("_")[2]
    other = token.replace(fingerprint, "0" * 64)

    for url, given, complaint in (
        (f"https://{HEAD}:{port}", other, "is not the server that made this token"),
        (f"http://{HEAD}:{port}", token, "not an https URL"),
        (f"https://{HEAD}:{port}", "frz_1_2", "not an enrolment token"),
        (f"https://{HEAD}:{bus}", token, f"{HEAD}:{bus}"),
    ):
        process = join(worker, url, given, "worker")
        said = process.communicate(timeout=60)[1]
        assert process.returncode != 0
        assert complaint in said
        assert "Traceback" not in said
    assert "not joined a cluster" in worker.run("node", "run", code=1).stderr
    assert token.split("_")[2] not in (head.root / "etc" / "nats-users.json").read_text()

    # The API does not answer strangers in the clear, and says what to trust.
    worker.environment["FRENZY_URL"] = f"https://{HEAD}:{port}"
    assert "FRENZY_CA" in worker.attempt("nodes").stderr


def join(machine, url, token, name, *options):
    machine.environment["FRENZY_NODE_TOKEN"] = token
    device = "emulated-worker:1:512MiB:1.5"
    return machine.start("node", "join", url, "--name", name, "--emulated", device, *options)


def submit(home):
    folder = home.home / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    spec = {
        "entrypoint": {"script": "train.py"},
        "workdir": str(folder),
        "model": "gpt2-tiny",
        "global_batch_size": 1,
        "sequence_length": 64,
        "resources": {"kinds": ["emulated-worker"]},
    }
    path = home.home / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    return home.run("submit", "-f", str(path), "-y", "-d", "-o", "name").stdout.strip()


def states(home):
    return {node["id"]: node["state"] for node in home.json("nodes")}


def wait_for(true, what, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def free_ports():
    with socket.create_server((HEAD, 0)) as one, socket.create_server((HEAD, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]
