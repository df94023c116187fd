"""Real partitions: the control plane and every node in a network namespace of its own."""

import json
import time

import pytest
from tests.support.deployment import NODES, Deployment
from tests.support.history import check
from tests.support.network import Network, needs_network_namespaces
from tests.support.recording import history_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), needs_network_namespaces]

HEAD = "head"
FENCE_S = 8.0
TIMING = {
    "HEARTBEAT_S": "0.5",
    "SUSPECT_AFTER_S": "3",
    "LOST_AFTER_S": "10",
    "FENCE_AFTER_S": str(FENCE_S),
    "FENCE_MARGIN_S": "3",
}


class Cluster(Deployment):
    """Servers and control plane on the host ``head``, every agent on a host of its own."""

    def __init__(self, folder, network: Network) -> None:
        self.network = network
        super().__init__(folder, timing=TIMING, bus_host="0.0.0.0")

    def _service(self, name, module, **settings):
        if name not in NODES:
            return super()._service(name, module, **settings)
        settings |= {
            "ADDRESS": self.network.address(name),
            "NATS_URL": self.nats.url.replace("127.0.0.1", self.network.address(HEAD)),
        }
        service = super()._service(name, module, **settings)
        service.argv = self.network.command(name, service.argv)
        return service

    def gang(self, name, seconds, **options):
        """Start a job on all nodes but one, whose ranks meet; return it and its nodes."""
        job = self.submit(name, ranks=4, seconds=seconds, env={"TEST_MEET": "1"}, **options)
        self.until(lambda: len(met(self, job)) == 4, f"the ranks of {name} meet", 60)
        self.until(lambda: self.job(job)["state"] == "RUNNING", f"{name} runs", 60)
        return job, self.nodes_of(job)

    def nodes_of(self, job):
        return list(dict.fromkeys(device["node"] for device in self.job(job)["devices"]))

    def all_up(self):
        self.until(lambda: set(self.node_states().values()) == {"UP"}, "every node is UP", 60)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    with (
        Network((HEAD, *NODES)) as network,
        network.inside(HEAD),
        Cluster(folder, network) as running,
    ):
        yield running


def met(system, job, attempt=1):
    """Return which addresses each rank of an attempt has met, by rank."""
    found = {}
    for path in system.records.glob(f"{job}.{attempt}.*.jsonl"):
        start, *later = (json.loads(line) for line in path.read_text().splitlines())
        for line in later:
            if line["kind"] == "met":
                found[start["rank"]] = line["peers"]
    return found


def test_the_ranks_of_a_gang_meet_across_hosts(system):
    job, nodes = system.gang("meets", 1.0)
    assert len(nodes) == 2
    assert system.finished(job)["state"] == "SUCCEEDED"
    first, second = map(system.network.address, nodes)
    assert met(system, job) == {
        0: {"1": first, "2": second, "3": second},
        **{rank: {"0": first} for rank in (1, 2, 3)},
    }


def test_a_partition_shorter_than_the_limit_changes_nothing(system):
    job, nodes = system.gang("short-partition", 7.0)
    system.network.cut(nodes[1])
    system.until(lambda: system.node_states()[nodes[1]] == "SUSPECT", "suspicion", FENCE_S / 2)
    system.network.mend(nodes[1])
    end = system.finished(job)
    assert (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 1, 0)
    system.all_up()


@pytest.mark.parametrize("way", ["both", "unheard", "deaf"])
def test_a_partition_past_the_limit_moves_the_job_after_the_fence(system, way):
    """``unheard``: only what the node sends is lost; ``deaf``: only what is sent to it."""
    job, nodes = system.gang(f"long-partition-{way}", 60.0, later_seconds=1.0)
    cut_off = nodes[1]
    break_way(system.network, cut_off, way)
    began = time.monotonic()
    system.until(lambda: system.job(job)["attempt"] == 2, "another attempt", 60)
    assert time.monotonic() - began > FENCE_S
    assert system.node_states()[cut_off] in {"SUSPECT", "LOST"}
    assert cut_off not in system.nodes_of(job)
    end = system.finished(job)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    mend_way(system.network, cut_off, way)
    system.all_up()
    again = system.submit(f"after-partition-{way}", ranks=2 * len(NODES))
    assert system.finished(again)["state"] == "SUCCEEDED"


def test_the_whole_history_is_right(system):
    assert check(history_of(system)) == []
    assert system.unexpected_exits() == {}


def break_way(network, node, way):
    match way:
        case "both":
            network.cut(node)
        case "unheard":
            network.mute(node, HEAD)
        case "deaf":
            network.mute(HEAD, node)


def mend_way(network, node, way):
    match way:
        case "both":
            network.mend(node)
        case "unheard":
            network.unmute(node, HEAD)
        case "deaf":
            network.unmute(HEAD, node)
