"""API tokens over HTTP: who sees and revokes which, when they were used, what becomes of them."""

from dataclasses import replace

import pytest

from frenzy_gateway.callers import Caller
from frenzy_gateway.settings import GatewaySettings
from frenzy_gateway.tokens import Tokens
from frenzy_shared.auth import Role, new_token, parse_token, token_record
from frenzy_shared.errors import InvalidState, Unavailable

DAY_MS = 86_400_000


async def made(client, **more):
    answer = await client.post("/api/v1/tokens", json={"name": "ann", **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def listed(client):
    answer = await client.get("/api/v1/tokens")
    assert answer.status_code == 200, answer.text
    return {one["id"]: one for one in answer.json()["tokens"]}


def holder(gateway, view):
    return gateway.anonymous(Authorization=f"Bearer {view['token']}")


async def test_a_list_tells_all_but_the_secret(gateway, admin):
    view = await made(admin, role="viewer", project="vision", expires_in_s=60)
    answer = await admin.get("/api/v1/tokens")
    assert parse_token(view["token"]).secret not in answer.text
    assert "sha256" not in answer.text
    one = (await listed(admin))[view["id"]]
    assert (one["role"], one["project"], one["expired"]) == ("viewer", "vision", False)
    assert one["last_used_at"] is None
    gateway.clock.now += 60_000
    assert (await listed(admin))[view["id"]]["expired"]


async def test_a_token_says_when_it_was_used_to_a_minute(gateway, admin):
    view = await made(admin)

    async def used_at():
        return (await listed(admin))[view["id"]]["last_used_at"]

    async with holder(gateway, view) as client:
        await client.get("/api/v1/version")
        first = await used_at()
        gateway.clock.now += 59_000
        await client.get("/api/v1/version")
        assert await used_at() == first
        gateway.clock.now += 1_000
        await client.get("/api/v1/version")
    assert first is not None
    assert await used_at() > first


async def test_a_store_that_cannot_note_the_use_refuses_nobody(gateway, admin, monkeypatch):
    async def full(*_):
        raise Unavailable("full")

    monkeypatch.setattr(gateway.store, "use_token", full, raising=False)
    view = await made(admin)
    async with holder(gateway, view) as client:
        assert (await client.get("/api/v1/version")).status_code == 200


async def test_a_revoked_token_is_void_at_once_and_announced(gateway, admin):
    view = await made(admin)
    async with holder(gateway, view) as client:
        assert (await client.get("/api/v1/version")).status_code == 200
        assert (await admin.post(f"/api/v1/tokens/{view['id']}:revoke")).status_code == 204
        refused = await client.get("/api/v1/version")
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert view["id"] not in await listed(admin)
    told = [entry.subject for entry in await gateway.store.read_outbox("", 99)]
    assert told[-1] == f"frenzy.v1.evt.cluster.token.revoked.{view['id']}"


async def test_an_administrator_of_a_project_sees_and_revokes_its_tokens_only(
    gateway, admin, problem
):
    mine = await made(admin, project="vision")
    other = await made(admin, project="audio")
    async with await gateway.client(Role.ADMIN, "vision") as limited:
        assert other["id"] not in await listed(limited)
        assert mine["id"] in await listed(limited)
        answer = await limited.post(f"/api/v1/tokens/{other['id']}:revoke")
        problem(answer, 404, "not_found")
        assert (await limited.post(f"/api/v1/tokens/{mine['id']}:revoke")).status_code == 204
    assert other["id"] in await listed(admin)


async def test_unknown_tokens_and_nodes_tokens_are_not_revoked(gateway, admin, problem):
    problem(await admin.post("/api/v1/tokens/nope:revoke"), 404, "not_found")
    async with await gateway.client(Role.NODE):
        pass
    (node,) = [one for one in (await listed(admin)).values() if one["role"] == "node"]
    body = problem(await admin.post(f"/api/v1/tokens/{node['id']}:revoke"), 409, "invalid_state")
    assert "frenzy node revoke" in body["suggestions"][0]


async def test_the_operators_own_token_comes_back_at_each_start_so_it_is_not_revoked(
    gateway, admin
):
    own, operator = new_token(), Caller(token_id="t", name="ops", role=Role.ADMIN, project="*")
    record = token_record(own, role=Role.ADMIN, project="*", name="admin", created_ms=0)
    await gateway.store.put_token(record)
    configured = replace(gateway.service, settings=GatewaySettings(admin_token=own.text))
    with pytest.raises(InvalidState, match="the operator's own") as refused:
        await configured.tokens.revoke(operator, own.id)
    assert "FRENZY_ADMIN_TOKEN" in refused.value.suggestions[0]
    assert own.id in await listed(admin)


@pytest.mark.parametrize(("age_days", "left"), [(29, 1), (31, 0)])
async def test_tokens_that_expired_long_ago_are_forgotten(gateway, admin, age_days, left):
    view = await made(admin, expires_in_s=1)
    forever = await made(admin)
    gateway.clock.now += 1000 + age_days * DAY_MS
    await Tokens(state=gateway.store, clock=gateway.clock).forget_expired()
    kept = await listed(admin)
    assert (view["id"] in kept) == bool(left)
    assert forever["id"] in kept
