"""`frenzy init`: the streams of a server that `frenzy up` does not run."""

import pytest
from tests.support.nats import nats_server, nats_url

from frenzy.cli.app import run
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.errors import Misconfigured

__all__ = ["nats_server", "nats_url"]


def test_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.delenv("FRENZY_NATS_URL", raising=False)
    assert run(["init"]) == 1
    assert "FRENZY_NATS_URL is not set" in capsys.readouterr().err


async def test_services_start_after_it(monkeypatch, nats_url):
    import asyncio

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
