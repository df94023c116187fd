"""Nodes over HTTP: who may take them out of service, and what is refused."""

from frenzy_shared.auth import Role
from frenzy_shared.domain.cluster import Device
from frenzy_shared.state.port import Change, NodeRegistration


async def node_up(gateway, name="n1", state="UP"):
    device = Device(id="gpu-0", kind="T4", memory_bytes=2**34)
    registration = NodeRegistration(node=name, boot_id="b", address="127.0.0.1", devices=(device,))
    await gateway.store.register_node(f"register:{name}", registration)
    await gateway.store.apply(
        f"{state}:{name}", Change(entity=f"node:{name}", patch={"state": state})
    )


async def test_drain_and_undrain(gateway):
    await node_up(gateway)
    async with await gateway.client() as client:
        body = {"reason": "new fan", "deadline_s": 90.0}
        answer = await client.post("/api/v1/nodes/n1:drain", json=body)
        assert answer.status_code == 200, answer.text
        why = "drained by admin-token: new fan; running jobs stop at 2023-11-14 22:14:50 UTC"
        assert answer.json()["state"] == "DRAINING"
        assert answer.json()["reason"] == answer.json()["drain"] == why
        gateway.clock.now += 91_000
        assert [timer.id for timer in await gateway.store.due()] == ["drain:n1:0"]
        answer = await client.post("/api/v1/nodes/n1:undrain")
        assert (answer.json()["state"], answer.json()["drain"]) == ("UP", "")
        version = (await gateway.store.node("n1")).version
        assert (await client.post("/api/v1/nodes/n1:undrain")).status_code == 200
        assert (await gateway.store.node("n1")).version == version


async def test_a_node_that_answers_cannot_be_dead(gateway):
    await node_up(gateway)
    async with await gateway.client() as client:
        answer = await client.post("/api/v1/nodes/n1:confirm-dead")
        assert answer.status_code == 409
        assert answer.json()["detail"] == "node n1 is UP: its agent answers, so it is not dead"
        await gateway.store.apply("s", Change(entity="node:n1", patch={"state": "SUSPECT"}))
        answer = await client.post("/api/v1/nodes/n1:confirm-dead")
        assert (answer.status_code, answer.json()["state"]) == (200, "LOST")
        gateway.clock.now += 10
        assert [timer.id for timer in await gateway.store.due()] == ["dead:n1:1"]


async def test_only_administrators_may(gateway):
    await node_up(gateway)
    async with await gateway.client(Role.SUBMITTER) as client:
        for verb in ("drain", "undrain", "confirm-dead"):
            answer = await client.post(f"/api/v1/nodes/n1:{verb}", json={})
            assert answer.status_code == 403, verb


async def test_what_is_wrong_is_named(gateway):
    await node_up(gateway)
    async with await gateway.client() as client:
        answer = await client.post("/api/v1/nodes/n9:undrain")
        assert (answer.status_code, answer.json()["detail"]) == (404, "no node 'n9'")
        for body, pointer in (
            ({"reason": "x" * 201}, "/reason"),
            ({"deadline_s": -1.0}, "/deadline_s"),
            ({"dead_line_s": 1.0}, "/dead_line_s"),
        ):
            answer = await client.post("/api/v1/nodes/n1:drain", json=body)
            assert answer.status_code == 422, body
            assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_node_that_keeps_changing_is_said_so(gateway, monkeypatch):
    await node_up(gateway)
    real = gateway.store.apply

    async def overtaken(op, change):
        await real(f"other:{op}", Change(entity="node:n1", patch={"reason": op}))
        return await real(op, change)

    monkeypatch.setattr(gateway.store, "apply", overtaken)
    async with await gateway.client() as client:
        answer = await client.post("/api/v1/nodes/n1:drain", json={})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


async def test_only_a_lost_node_that_holds_nothing_is_forgotten(gateway):
    await node_up(gateway)
    async with await gateway.client() as client:
        answer = await client.delete("/api/v1/nodes/n1")
        assert answer.status_code == 409
        assert answer.json()["detail"] == "node n1 is UP: only a LOST node can be forgotten"
        await gateway.store.apply("s", Change(entity="node:n1", patch={"state": "LOST"}))
        gateway.store._tables.owners["n1/gpu-0"] = "j1#1"
        answer = await client.delete("/api/v1/nodes/n1")
        assert (answer.status_code, answer.json()["detail"]) == (
            409,
            "node n1 cannot be forgotten: n1/gpu-0 is held by j1#1",
        )
        gateway.store._tables.owners["n1/gpu-0"] = ""
        assert (await client.delete("/api/v1/nodes/n1")).status_code == 204
        assert (await client.get("/api/v1/nodes")).json()["nodes"] == []
        assert (await client.delete("/api/v1/nodes/n1")).status_code == 404


async def test_forgetting_is_for_administrators(gateway):
    await node_up(gateway, state="LOST")
    async with await gateway.client(Role.SUBMITTER) as client:
        assert (await client.delete("/api/v1/nodes/n1")).status_code == 403
