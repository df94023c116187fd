"""`frenzy init`: the streams of a server that `frenzy up` does not run."""

import asyncio

import pytest
from tests.support.nats import NatsServer, nats_server, nats_url

from frenzy.cli.app import run
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.errors import Misconfigured

__all__ = ["nats_server", "nats_url"]


def test_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.delenv("FRENZY_NATS_URL", raising=False)
    assert run(["init"]) == 1
    assert "FRENZY_NATS_URL is not set" in capsys.readouterr().err


async def test_services_start_after_it(monkeypatch, nats_url):
    bus = await NatsBus.connect(nats_url, name="test")
    try:
        with pytest.raises(Misconfigured, match="does not exist"):
            await bus.verify_streams()
        monkeypatch.setenv("FRENZY_NATS_URL", nats_url)
        assert await asyncio.to_thread(run, ["init"]) == 0
        assert await asyncio.to_thread(run, ["init"]) == 0
        await bus.verify_streams()
    finally:
        await bus.close()


async def test_the_keys_it_makes_open_a_server_that_includes_their_users(monkeypatch, tmp_path):
    monkeypatch.delenv("FRENZY_NATS_URL", raising=False)
    assert (
        await asyncio.to_thread(run, ["init", "--identities", str(tmp_path), "--node", "n1"]) == 0
    )
    server = NatsServer(tmp_path, authorization='include "nats-users.conf"')
    server.start()
    try:
        monkeypatch.setenv("FRENZY_NATS_URL", f"nats://127.0.0.1:{server.port}")
        monkeypatch.setenv("FRENZY_NATS_NKEY", str(tmp_path / "keys" / "admin.nk"))
        assert await asyncio.to_thread(run, ["init"]) == 0
        node = Access(url=server.url, nkey=tmp_path / "keys" / "node-n1.nk")
        bus = await NatsBus.connect(node, name="node-n1")
        await bus.verify_streams()
        await bus.close()
    finally:
        server.stop()


def test_a_node_has_a_name(tmp_path, capsys):
    assert run(["init", "--identities", str(tmp_path), "--node", "Node 1"]) == 1
    assert "--node: 'Node 1'" in capsys.readouterr().err
