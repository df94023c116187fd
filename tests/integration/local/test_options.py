"""What `frenzy up` may be asked for."""

import pytest

from frenzy.local.options import MIXED_CLUSTER, Options, parse_emulated, parse_replicas
from frenzy_orchestrator.adapters.devices.emulated import EmulatedDevices
from frenzy_shared.errors import Misconfigured


def test_devices_are_grouped_by_node():
    assert parse_emulated(
        "a:emulated-1:2:96MiB:0.5; b:emulated-2:1:1GiB:1 ;a:emulated-3:1:512MiB:1.5"
    ) == {
        "a": "emulated-1:2:96MiB:0.5,emulated-3:1:512MiB:1.5",
        "b": "emulated-2:1:1GiB:1",
    }


def test_the_mixed_cluster_is_three_nodes_and_three_kinds():
    nodes = parse_emulated(MIXED_CLUSTER)
    kinds = {d.split(":")[0] for devices in nodes.values() for d in devices.split(",")}
    assert len(nodes) == len(kinds) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no device"),
        ("a:k:1:1GiB", "five parts"),
        ("A:k:1:1GiB:1", "node name"),
        ("a:K_1:1:1GiB:1", "kind name"),
        ("a:a100:1:1GiB:1", "emulated-<name>"),
        ("a:emulated-k:257:1GiB:1", "count from 1 to 256"),
        ("a:emulated-k:200:1GiB:1;a:emulated-l:57:1GiB:1", "node 'a' has 257 devices"),
        ("a:emulated-k:1:1B:1", "from 1 MiB"),
        ("a:emulated-k:1:100000000000000000000TB:1", "to 1024 TiB"),
        ("a:emulated-k:0:1GiB:1", "count"),
        ("a:emulated-k:1:1:1", "size"),
        ("a:emulated-k:1:-1GiB:1", "positive"),
        ("a:emulated-k:1:1GiB:nan", "speed"),
        ("a:emulated-k:1:1GiB:0", "speed"),
    ],
)
def test_wrong_devices_are_named(text, says):
    with pytest.raises(Misconfigured, match=says):
        parse_emulated(text)


def test_replicas():
    assert parse_replicas("gateway=2, marp=3") == {"gateway": 2, "marp": 3}
    assert parse_replicas("") == {}
    for wrong in ("gateway", "agent=2", "gateway=0", "gateway=99", "gateway=two"):
        with pytest.raises(Misconfigured, match="--replicas"):
            parse_replicas(wrong)


def test_options_survive_json():
    options = Options(port=1, nodes={"a": "k:1:1GiB:1"}, replicas={"marp": 2}, stop_grace_s=3.0)
    assert Options.from_json(options.to_json()) == options
    assert options.count("marp") == 2
    assert options.count("gateway") == 1


def test_what_is_taken_is_taken_by_the_agent_too():
    (devices,) = parse_emulated("a:emulated-k:256:1MiB:1").values()
    assert len(EmulatedDevices(devices).devices()) == 256
    with pytest.raises(Misconfigured, match="1-256"):
        EmulatedDevices("emulated-k:200:1GiB:1,emulated-l:57:1GiB:1")
