"""API tokens through the SDK, blocking and not, and with the command line."""

import json

import httpx
import pytest
from tests.support.api import NOW, ScriptedApi, ok
from tests.support.cli import cli

from frenzy import AsyncClient, Client
from frenzy_shared.auth import new_token
from frenzy_shared.messages.http import TokenInfo, TokenList, TokenView

__all__ = ["cli"]

VIEW = TokenView(
    id="1a", token="frz_1a_5e", name="ci", role="viewer", project="vision", expires_at=NOW
)


@pytest.fixture
def api():
    return ScriptedApi().on("POST", "/tokens", ok(VIEW, 201))


def test_blocking(api):
    with Client("http://f", "t", transport=httpx.MockTransport(api)) as client:
        made = client.admin.create_token(
            name="ci", role="viewer", project="vision", expires_in_s=60.0
        )
    assert made == VIEW
    assert json.loads(api.sent("POST", "/tokens")[0].content) == {
        "role": "viewer",
        "project": "vision",
        "name": "ci",
        "expires_in_s": 60.0,
    }


async def test_async(api):
    async with AsyncClient("http://f", "t", transport=httpx.MockTransport(api)) as client:
        assert await client.admin.create_token(name="ci") == VIEW
    body = json.loads(api.sent("POST", "/tokens")[0].content)
    assert (body["role"], body["expires_in_s"]) == ("submitter", None)


def test_the_command_writes_the_secret_to_stdout_and_the_rest_to_stderr(cli):
    cli.api.on("POST", "/tokens", ok(VIEW, 201))
    made = cli("token", "create", "--role", "viewer", "--project", "vision", "--expires", "30d")
    assert (made.code, made.out) == (0, "frz_1a_5e\n")
    assert "token 1a (ci): viewer of project vision, valid until" in made.err
    assert "frz_1a_5e" not in made.err
    body = json.loads(cli.api.sent("POST", "/tokens")[0].content)
    assert body == {
        "role": "viewer",
        "project": "vision",
        "name": "viewer",
        "expires_in_s": 30 * 86_400.0,
    }
    assert cli("token", "create", "--role", "viewer", "-q").err == ""
    machine = cli("token", "create", "--role", "viewer", "-o", "json")
    assert json.loads(machine.out)["token"] == "frz_1a_5e"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--role", "node"), "'node' is not one of"),
        (("--role", "viewer", "--expires", "soon"), "--expires: "),
        ((), "--role"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(cli, arguments, says):
    result = cli("token", "create", *arguments)
    assert result.code in (1, 2)
    assert says in result.err
    assert not cli.api.requests


def info(name, **more):
    fields = {"id": name, "name": "ann", "role": "viewer", "project": "vision", "created_at": NOW}
    return TokenInfo(**{**fields, **more})


FOUND = TokenList(
    tokens=(
        info("1a", last_used_at=NOW),
        info("2b", expires_at=NOW, expired=True),
        info("3c", role="node"),
    )
)


async def test_tokens_are_listed_and_revoked_by_both_clients():
    api = ScriptedApi().on("GET", "/tokens", ok(FOUND)).on("POST", "/tokens/1a:revoke", NOTHING)
    with Client("http://f", "t", transport=httpx.MockTransport(api)) as client:
        assert client.admin.tokens() == FOUND.tokens
        client.admin.revoke_token("1a")
    async with AsyncClient("http://f", "t", transport=httpx.MockTransport(api)) as client:
        assert await client.admin.tokens() == FOUND.tokens
        await client.admin.revoke_token("1a")
    assert len(api.sent("POST", "/tokens/1a:revoke")) == 2


NOTHING = httpx.Response(204)


def test_the_list_shows_use_and_expiry_and_no_node(cli):
    cli.api.on("GET", "/tokens", ok(FOUND))
    shown = cli("token", "list").out
    assert [line.split()[0] for line in shown.splitlines()] == ["ID", "1a", "2b"]
    assert "2026-01-02 03:04 UTC" in shown
    assert "expired" in shown
    assert cli("token", "list", "--nodes", "-q").out == "1a\n2b\n3c\n"


def test_revoking_takes_ids_and_refuses_secrets(cli):
    cli.api.on("POST", "/tokens/1a:revoke", NOTHING)
    assert cli("token", "revoke", "1a").err == "token 1a is revoked\n"
    whole = new_token()
    refused = cli("token", "revoke", whole.text)
    assert (refused.code, whole.secret in refused.err) == (1, False)
    assert f"frenzy token revoke {whole.id}" in refused.err
    assert len(cli.api.requests) == 1
