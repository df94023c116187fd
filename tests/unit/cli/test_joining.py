"""`frenzy node join`: what a machine without GPUs, or with a key that is taken, is told."""

import pytest

from frenzy.cli.commands import node
from frenzy.local import joining
from frenzy.local.joining import Membership
from frenzy_shared.auth import new_enrolment_token
from frenzy_shared.bus import keys
from frenzy_shared.errors import Forbidden, InvalidState
from frenzy_shared.messages.http import EnrolView

URL = "https://10.0.0.5:8642"


@pytest.fixture
def machine(cli, monkeypatch):
    """A machine whose agent is not run, with a token."""
    started = []
    monkeypatch.setattr(joining, "become_agent", lambda *_: started.append(1))
    monkeypatch.setattr(joining, "_trusted_authority", lambda *_: "")
    monkeypatch.setattr(node, "has_nvidia_gpus", lambda: False)
    monkeypatch.setenv("FRENZY_NODE_TOKEN", new_enrolment_token("").text)
    return cli, started


def test_a_node_without_gpus_is_told_of_emulated_ones(machine, monkeypatch):
    cli, started = machine
    member = Membership(node="n", url=URL, nats_url="tls://10.0.0.5:4222", blobs_token="t")
    monkeypatch.setattr(joining, "join", lambda *_: member)
    monkeypatch.setattr(joining, "agent_environment", lambda *_: {})
    assert "no NVIDIA GPU was found" in cli("node", "join", URL).err
    emulated = cli("node", "join", URL, "--emulated", "emulated-a100:1:1GiB:1.0")
    assert "GPU" not in emulated.err
    assert len(started) == 2


def test_a_key_that_is_taken_is_named_and_the_token_is_said_to_be_valid(
    machine, monkeypatch, tmp_path
):
    def refuse(*_):
        raise InvalidState("the key of node b already belongs to node a", suggestions=("--data",))

    cli, started = machine
    monkeypatch.setattr(joining, "_enrol", refuse)
    result = cli("node", "join", URL, "--name", "b", "--data", str(tmp_path / "node"))
    assert result.code == 1
    assert "already belongs to node a\n  try: --data\n" in result.err
    assert str(tmp_path / "node" / "node.nk") in result.err
    assert "token was not used up" in result.err
    assert not started


def test_a_node_that_joins_again_gets_a_new_key_once_the_cluster_knows_it(
    machine, monkeypatch, tmp_path
):
    cli, started = machine
    folder = joining.NodeFolder(tmp_path / "node")
    seen, refusing = [], []

    def enrol(_, request, __):
        seen.append(request.public_key)
        if refusing:
            raise Forbidden("the enrolment token is not valid")
        return EnrolView(node="n", nats_url="tls://10.0.0.5:4222", token="t")

    monkeypatch.setattr(joining, "_enrol", enrol)
    monkeypatch.setattr(joining, "agent_environment", lambda *_: {})
    again = ("node", "join", URL, "--name", "n", "--data", str(folder.root))
    assert cli(*again).code == 0
    first = folder.key.read_text()
    refusing.append(True)
    assert cli(*again).code == 1
    assert folder.key.read_text() == first
    refusing.clear()
    assert cli(*again).code == 0
    assert keys.public_key(folder.key) == seen[-1] == seen[-2] != seen[0]
    assert len(started) == 2
