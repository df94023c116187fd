"""A cluster of three hosts as an operator makes it: join with one-time tokens, train across hosts,
rotate every certificate and key while jobs run, shut a host out amid an attempt.
"""

import datetime as dt
import re
import socket
import ssl
from pathlib import Path

import pytest
from tests.support.installation import Installation, until
from tests.support.network import Network, needs_network_namespaces

from frenzy import Client
from frenzy.local import credentials, joining
from frenzy.local.certificates import ensure
from frenzy.local.layout import Layout

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), needs_network_namespaces]

HEAD, WORKERS = "head", ("worker-1", "worker-2")
PORT, BUS_PORT = 8642, 4222
TIMING = {
    "SUSPECT_AFTER_S": "12",  # joined nodes beat every 5 s
    "LOST_AFTER_S": "30",  # a busy machine takes 20 s to start an agent again
    "FENCE_AFTER_S": "25",
    "FENCE_MARGIN_S": "3",
    "STOP_GRACE_S": "2",
    "BACKOFF_BASE_S": "0.3",
}
GANG = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", total.item(), "at", os.environ["MASTER_ADDR"], "on", os.environ["GLOO_SOCKET_IFNAME"])
"""
LASTING = """
import os, time
until = time.monotonic() + float(os.environ["SECONDS"])
print("pid", os.getpid(), flush=True)
while time.monotonic() < until:
    time.sleep(0.1)
"""


class Hosts:
    """The head and two workers, each an installation on a host of its own. The calling thread is
    on the head.
    """

    def __init__(self, folder, network: Network) -> None:
        self.network = network
        self.homes = {name: Installation(folder / name) for name in (HEAD, *WORKERS)}
        self.agents = {}
        self.url = f"https://{network.address(HEAD)}:{PORT}"
        self.layout = Layout(self.homes[HEAD].root)

    def up(self):
        settings = [f"--set=FRENZY_{name}={value}" for name, value in TIMING.items()]
        where = ("--listen", self.network.address(HEAD), "--port", str(PORT))
        emulated = ("--emulated", "head:emulated-a100-40:1:256MiB:1.0")
        self.homes[HEAD].run("up", *where, "--bus-port", str(BUS_PORT), *emulated, *settings)
        token = credentials.load_or_make(self.layout).admin_token
        self.api = Client(self.url, token, ca=str(self.layout.authority))

    def join(self, worker):
        """Enrol a worker with a token that names it, and leave its agent running."""
        token = self.api.node_token(node=worker).token
        self.homes[worker].environment["FRENZY_NODE_TOKEN"] = token
        self._agent(worker, "join", self.url, "--name", worker)

    def run_again(self, worker):
        """Kill a worker's agent and start another one."""
        self.agents[worker].kill()
        self.agents[worker].communicate()
        self._agent(worker, "run")

    def submit(self, script, **fields):
        home = self.homes[HEAD].home
        folder = home / f"code-{len(list(home.glob('code-*')))}"
        folder.mkdir()
        (folder / "train.py").write_text(script)
        spec = {
            "entrypoint": {"script": "train.py"},
            "workdir": str(folder),
            "model": "gpt2-tiny",
            "global_batch_size": 2,
            "sequence_length": 64,
            "resources": {"kinds": ["emulated-worker"], "gpus": 2},
            "retry": {"max_retries": 5},
            **fields,
        }
        return self.api.submit(spec)

    def all_up(self):
        states = {node.id: node.state for node in self.api.nodes()}
        return states == dict.fromkeys(self.homes, "UP")

    def close(self):
        self.api.close()
        for agent in self.agents.values():
            agent.kill()
            agent.communicate()

    def certificate_shown(self):
        """Return what a worker that connects to the API is shown."""
        trust = ssl.create_default_context(cafile=str(self.layout.authority))
        where = self.network.address(HEAD)
        with (
            self.network.inside(WORKERS[0]),
            socket.create_connection((where, PORT), timeout=5) as plain,
            trust.wrap_socket(plain, server_hostname=where) as safe,
        ):
            return safe.getpeercert(binary_form=True)

    def _agent(self, worker, *arguments):
        device = "emulated-worker:1:512MiB:1.0"
        with self.network.inside(worker):
            self.agents[worker] = self.homes[worker].start("node", *arguments, "--emulated", device)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    with Network((HEAD, *WORKERS)) as network, network.inside(HEAD):
        made = Hosts(folder, network)
        try:
            made.up()
            for worker in WORKERS:
                made.join(worker)
            until(made.all_up, "every host is UP")
            yield made
        finally:
            made.homes[HEAD].attempt("down")
            made.close()
            for home in made.homes.values():
                home.destroy()


def running(job):
    until(lambda: job.refresh().state == "RUNNING", f"{job.id} runs")


def test_torch_trains_over_two_joined_hosts(hosts):
    job = hosts.submit(GANG)
    assert job.wait(150).state == "SUCCEEDED"  # two imports of torch
    said = "\n".join(job.logs())
    addresses = [hosts.network.address(worker) for worker in WORKERS]
    assert any(f"sum 3.0 at {address} on eth0" in said for address in addresses)


def test_certificates_and_keys_are_rotated_while_a_job_runs(hosts):
    job = hosts.submit(LASTING, env={"SECONDS": "20"})
    running(job)
    renew_certificate(hosts)
    worker = WORKERS[0]
    key = joining.NodeFolder(hosts.homes[worker].root / "node").key
    before, first = key.read_text(), hosts.agents[worker]
    hosts.join(worker)
    assert "NATS refuses this service" in first.communicate(timeout=30)[1]
    assert key.read_text() != before
    hosts.run_again(WORKERS[1])  # finds the bus with its new certificate
    end = job.wait(120)
    assert (end.state, end.attempt, end.retries) == ("SUCCEEDED", 1, 0)
    until(hosts.all_up, "every host is UP")
    assert "Reloaded: tls = enabled" in hosts.layout.log("nats").read_text()


def renew_certificate(hosts):
    """Make another one, as `frenzy up` does in its last days; wait until it is served."""
    before = hosts.certificate_shown()
    hosts.layout.certificate.unlink()
    names = (hosts.network.address(HEAD), "127.0.0.1", "localhost")
    ensure(hosts.layout.certificates, names, dt.datetime.now(dt.UTC))
    until(lambda: hosts.certificate_shown() != before, "the API serves the new one", 30)


def test_a_host_that_is_shut_out_amid_an_attempt_gives_its_job_up(hosts):
    one = {"kinds": ["emulated-worker"], "gpus": 1}
    job = hosts.submit(LASTING, env={"SECONDS": "90"}, resources=one, global_batch_size=1)
    running(job)
    (held,) = {device.node for device in job.refresh().devices}
    (other,) = set(WORKERS) - {held}
    until(lambda: pids(job), "its rank says who it is")
    (pid,) = pids(job)
    assert Path(f"/proc/{pid}").exists()
    hosts.api.revoke_node(held)
    assert "NATS refuses this service" in hosts.agents[held].communicate(timeout=30)[1]
    until(lambda: job.refresh().attempt == 2, "another attempt", 90)
    assert not Path(f"/proc/{pid}").exists()
    running(job)
    assert {device.node for device in job.refresh().devices} == {other}
    job.cancel()


def pids(job):
    return re.findall(r"\bpid (\d+)", "\n".join(job.logs()))
