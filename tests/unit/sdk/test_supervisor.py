"""What ``frenzy up`` waits for at the end of its start."""

import errno
import types

import pytest
from tests.support.api import node_list

from frenzy.local import supervisor
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy_shared.errors import StorageFull, Unavailable
from frenzy_shared.messages.http import SAFE_MODE, CheckView, ReadinessView

NODE = node_list().nodes[0]


class FakeClient:
    """A server whose nodes and checks a test chooses."""

    states = ("UP",)
    checks = ()

    def __init__(self, *_, **__):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def nodes(self):
        found = (("node-a", self.states[0]), ("node-b", self.states[-1]))
        return tuple(NODE.model_copy(update={"id": name, "state": state}) for name, state in found)

    async def readiness(self):
        return ReadinessView(status="ready", checks=self.checks)


@pytest.fixture
def wait(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "AsyncClient", FakeClient)
    monkeypatch.setattr(supervisor, "_NODES_UP_S", 0.05)
    monkeypatch.setattr(supervisor, "_POLL_S", 0.01)

    async def run(*states, checks=()):
        monkeypatch.setattr(FakeClient, "states", states)
        monkeypatch.setattr(FakeClient, "checks", checks)
        options = Options(port=1, nodes={"node-a": "", "node-b": ""})
        made = supervisor.Supervisor(Layout(root=tmp_path), options, lambda _: None)
        plan = types.SimpleNamespace(url="http://f", nats=types.SimpleNamespace(ca=None))
        await made._wait_for_nodes(plan, "token")

    return run


async def test_a_node_that_was_drained_before_is_here(wait):
    await wait("UP", "DRAINING")


async def test_a_node_that_does_not_come_is_named(wait):
    with pytest.raises(Unavailable, match="node-b"):
        await wait("UP", "JOINING")


async def test_a_disk_that_is_full_while_it_starts_is_said_in_words(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor.stack, "build", full)
    with pytest.raises(StorageFull, match="is full"):
        await supervisor.supervise(Layout(root=tmp_path), lambda _: None)


async def test_in_safe_mode_nobody_is_waited_for(wait, caplog):
    check = CheckView(name=SAFE_MODE, ok=False, detail="an old copy")
    await wait("JOINING", checks=(CheckView(name="bus", ok=False), check))
    assert "SAFE MODE: an old copy" in caplog.text
