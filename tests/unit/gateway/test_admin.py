"""SAFE MODE as clients and administrators see it."""

from frenzy_shared.auth import Role
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import ReconcileReply, ReconcileRequest, Reconciliation

SPEC = {"model": "gpt2", "data": "node:/data/text", "global_batch_size": 8}


async def test_in_safe_mode_nothing_is_accepted_and_readiness_says_why(gateway):
    await gateway.store.enter_safe_mode("the store is an old copy")
    async with await gateway.client() as client:
        answer = await client.post("/api/v1/jobs", json=SPEC)
        assert (answer.status_code, answer.json()["code"]) == (503, "safe_mode")
        assert answer.headers["Retry-After"] == "2"
        assert "frenzy admin reconcile" in answer.json()["suggestions"][0]
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        check = next(c for c in ready.json()["checks"] if c["name"] == "safe mode")
        assert check["detail"] == "nothing starts or changes: the store is an old copy"


async def test_in_safe_mode_a_death_is_confirmed_with_the_repair(gateway):
    await gateway.store.enter_safe_mode("the store is an old copy")
    async with await gateway.client() as client:
        answer = await client.post("/api/v1/nodes/n1:confirm-dead")
    assert answer.status_code == 409
    assert answer.json()["suggestions"] == ["frenzy admin reconcile --apply --dead n1"]


async def test_the_leader_is_asked(gateway):
    asked = []

    async def leader(message):
        request = ReconcileRequest.decode(message.payload)
        assert request.by
        asked.append((request.apply, request.dead))
        return ReconcileReply(result=Reconciliation(count=3, applied=request.apply)).encode()

    await gateway.bus.serve(subjects.SCHEDULER_RECONCILE, leader)
    async with await gateway.client() as client:
        assert (await client.post("/api/v1/admin/reconcile")).json()["count"] == 3
        answer = await client.post("/api/v1/admin/reconcile?apply=true")
        assert answer.json()["applied"]
        await client.post("/api/v1/admin/reconcile?apply=true&dead=n1&dead=n2")
    assert asked == [(False, ()), (True, ()), (True, ("n1", "n2"))]


async def test_what_the_leader_could_not_do_is_told(gateway):
    async with await gateway.client() as client:
        assert (await client.post("/api/v1/admin/reconcile")).status_code == 503

        async def leader(message):
            return ReconcileReply(error="the bus is away").encode()

        await gateway.bus.serve(subjects.SCHEDULER_RECONCILE, leader)
        answer = await client.post("/api/v1/admin/reconcile")
        assert (answer.status_code, answer.json()["detail"]) == (503, "the bus is away")


async def test_only_administrators_may(gateway):
    async with await gateway.client(Role.SUBMITTER) as client:
        assert (await client.post("/api/v1/admin/reconcile")).status_code == 403
