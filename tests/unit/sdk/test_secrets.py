"""Secrets through the SDK, blocking and not."""

from datetime import UTC, datetime

import httpx
import pytest
from tests.support.api import ScriptedApi, ok

from frenzy import AsyncClient, Client
from frenzy.exchange import Call
from frenzy_shared.messages.secrets import SecretList, SecretView

VIEW = SecretView(name="hub", project="default", updated_at=datetime(2026, 11, 30, tzinfo=UTC))
PATH = "/projects/default/secrets"


@pytest.fixture
def api():
    api = ScriptedApi()
    api.on("PUT", f"{PATH}/hub", ok(VIEW)).on("DELETE", f"{PATH}/hub", httpx.Response(204))
    return api.on("GET", PATH, ok(SecretList(secrets=(VIEW,))))


def test_blocking(api):
    with Client("http://f", "t", transport=httpx.MockTransport(api)) as client:
        assert client.secrets.set("hub", "grün") == VIEW
        assert client.secrets.list() == (VIEW,)
        client.secrets.delete("hub")
    assert api.sent("PUT", f"{PATH}/hub")[0].content == "grün".encode()


async def test_async(api):
    async with AsyncClient("http://f", "t", transport=httpx.MockTransport(api)) as client:
        assert await client.secrets.set("hub", "x") == VIEW
        assert await client.secrets.list() == (VIEW,)
        await client.secrets.delete("hub")


def test_a_call_does_not_show_its_text():
    assert "hunter2" not in repr(Call(method="PUT", path="/x", text="hunter2"))
