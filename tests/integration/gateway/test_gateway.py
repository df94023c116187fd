"""One gateway, then two, on real servers."""

import asyncio
import contextlib
import hashlib
import json
import socket
import time

import httpx
from tests.integration.gateway.conftest import SPEC

from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet, RefusedPlan
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import LogBatch, LogLine, PlanReply
from frenzy_shared.outbox import OutboxRelay
from frenzy_shared.state.port import Change, OutboxMessage

JOBS = "/api/v1/jobs"
SSE = {"Accept": "text/event-stream"}


async def submit(client, **headers):
    response = await client.post(JOBS, json=SPEC, headers=headers)
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def ship(bus, job, numbers, rank=0):
    lines = tuple(LogLine(number=n, time_ms=n, output="stdout", text=f"line {n}") for n in numbers)
    batch = LogBatch(job=job, attempt=1, rank=rank, node="n1", lines=lines)
    await bus.publish(
        subjects.log("default", job, 1, rank),
        batch.encode(),
        message_id=f"{job}:1:{rank}:{numbers[0]}",
    )


async def move(store, job, state):
    event = OutboxMessage(
        subject=subjects.job_event("default", state.lower(), job), type=state.lower()
    )
    result = await store.apply(
        f"{job}:{state}", Change(entity=f"job:{job}", patch={"state": state}, outbox=(event,))
    )
    assert result.ok, result


async def read_sse(client, path, *, headers=None, stop_after=None):
    """Return (event, data, id) until the stream ends, or the client leaves after some."""
    found = []
    async with client.stream("GET", path, headers={**SSE, **(headers or {})}) as response:
        assert response.status_code == 200
        fields = {}
        async for line in response.aiter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
                fields = {}
                if stop_after is not None and len(found) == stop_after:
                    return found
    return found


async def test_a_jobs_way_through_the_api(client, store, bus):
    job = await submit(client, **{"Idempotency-Key": "k"})
    again = await client.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, job)
    other = await client.post(JOBS, json={**SPEC, "seed": 2}, headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert [item["id"] for item in (await client.get(JOBS)).json()["jobs"]] == [job]
    assert (await client.get(f"{JOBS}/{job}/spec")).json()["model"] == "gpt2"
    assert (await store.job(job)).submitted_by == "admin"
    assert (await client.post(f"{JOBS}/{job}:cancel")).json()["state"] == "CANCELLED"
    assert (await client.post(f"{JOBS}/{job}:cancel")).status_code == 200
    await OutboxRelay(store=store, bus=bus).step()
    found = await read_sse(client, f"{JOBS}/{job}/events")
    assert [data.get("type", data.get("state")) for _, data, _ in found] == [
        "dev.frenzy.job.submitted.v1",
        "dev.frenzy.job.cancelled.v1",
        "CANCELLED",
    ]
    assert [event["type"] for event in (await client.get(f"{JOBS}/{job}/events")).json()] == [
        "dev.frenzy.job.submitted.v1",
        "dev.frenzy.job.cancelled.v1",
    ]
    entries = (await client.get(f"{JOBS}/{job}/timeline")).json()["entries"]
    assert [entry["state"] for entry in entries] == ["SUBMITTED", "CANCELLED"]
    assert (await client.get("/readyz")).json()["status"] == "ready"
    assert 'frenzy_jobs{state="CANCELLED"} 1.0' in (await client.get("/metrics")).text


async def test_marp_is_asked_over_the_bus(client, bus):
    refused = RefusedPlan(
        kind="rtx", device_count=1, option="1 x RTX", reason="pinned away", pin="resources.kinds"
    )
    replies = [
        PlanReply(
            plans=PlanSet(plans=(), refused=(refused,), kinds_digest="", message="nothing fits")
        )
    ]

    async def marp(message):
        assert message.headers["traceparent"]
        return replies[0].encode()

    await bus.serve(subjects.MARP_PLAN, marp, queue="marp")
    response = await client.post(JOBS, json=SPEC)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (
        422,
        "/resources/kinds",
    )
    assert (await client.post("/api/v1/plans", json=SPEC)).json()["plans"][
        "message"
    ] == "nothing fits"
    assert (await client.post(f"{JOBS}?force_queue=true", json=SPEC)).status_code == 201
    assert len((await client.get(JOBS)).json()["jobs"]) == 1


async def test_logs_are_whole_followed_and_resumed_without_loss_or_repeats(client, store, bus):
    job = await submit(client)
    await ship(bus, "otherjob", range(1, 4))
    await ship(bus, job, range(1, 4))
    start = time.monotonic()
    assert (await client.get(f"{JOBS}/{job}/logs?rank=0")).text == "line 1\nline 2\nline 3\n"
    assert time.monotonic() - start < 0.9  # nothing is waited for

    first = await read_sse(client, f"{JOBS}/{job}/logs", stop_after=2)
    following = asyncio.ensure_future(
        read_sse(client, f"{JOBS}/{job}/logs", headers={"Last-Event-ID": first[-1][2]})
    )
    await asyncio.sleep(0.3)
    await ship(bus, job, range(4, 6))
    await ship(bus, job, range(1, 3), rank=1)
    await move(store, job, JobState.CANCELLED)
    rest = await following
    told = [(data["rank"], data["number"]) for event, data, _ in first + rest if event == "log"]
    assert told == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2)]
    assert rest[-1][:2] == ("end", {"state": "CANCELLED"})


async def test_a_follower_rides_out_a_restart_of_nats(processes, fresh_nats_server, valkey, store):
    from frenzy_shared.bus.nats import NatsBus

    bus = await NatsBus.connect(fresh_nats_server.url, name="test")
    await bus.ensure_streams()
    gateway = await processes(fresh_nats_server.url, valkey.url).ready()
    async with gateway.client() as client:
        job = await submit(client)
        await ship(bus, job, range(1, 3))
        following = asyncio.ensure_future(read_sse(client, f"{JOBS}/{job}/logs"))
        await asyncio.sleep(0.5)
        fresh_nats_server.kill()
        response = await client.post(JOBS, json=SPEC)
        assert response.status_code == 201  # NATS is not needed to accept a job
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert (await client.get(f"{JOBS}/{job}/logs")).status_code == 503
        await asyncio.to_thread(fresh_nats_server.start)
        for _ in range(100):
            if bus.connected:
                break
            await asyncio.sleep(0.1)
        await ship(bus, job, range(3, 5))
        await move(store, job, JobState.CANCELLED)
        found = await asyncio.wait_for(following, 30)
        assert [data["number"] for event, data, _ in found if event == "log"] == [1, 2, 3, 4]
        assert found[-1][:2] == ("end", {"state": "CANCELLED"})
    await bus.close()


async def test_without_the_store_nothing_is_accepted_and_everything_comes_back(
    processes, bus, nats_server, fresh_valkey
):
    gateway = await processes(nats_server.url, fresh_valkey.url).ready()
    async with gateway.client() as client:
        accepted = await submit(client, **{"Idempotency-Key": "before"})
        await asyncio.to_thread(fresh_valkey.kill)
        response = await client.post(JOBS, json=SPEC, headers={"Idempotency-Key": "during"})
        assert (response.status_code, response.json()["code"]) == (503, "unavailable")
        assert "retry-after" in response.headers
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert (await client.get("/healthz")).status_code == 200
        await asyncio.to_thread(fresh_valkey.start)
        for _ in range(100):
            if (await client.get("/readyz")).status_code == 200:
                break
            await asyncio.sleep(0.1)
        assert [job["id"] for job in (await client.get(JOBS)).json()["jobs"]] == [accepted]
        again = await client.post(JOBS, json=SPEC, headers={"Idempotency-Key": "before"})
        assert (again.status_code, again.json()["id"]) == (200, accepted)
        assert (
            await client.post(JOBS, json=SPEC, headers={"Idempotency-Key": "during"})
        ).status_code == 201


async def test_two_gateways_are_one_api(processes, gateway, nats_server, valkey):
    other = await processes(nats_server.url, valkey.url).ready()
    async with gateway.client() as one, other.client() as two:
        requests = [
            client.post(JOBS, json=SPEC, headers={"Idempotency-Key": f"k{n}"})
            for n in range(5)
            for client in (one, two, one, two)
        ]
        responses = await asyncio.gather(*requests)
        assert {response.status_code for response in responses} <= {200, 201}
        assert [response.status_code for response in responses].count(201) == 5
        ids = {response.json()["id"] for response in responses}
        assert len(ids) == 5
        assert {job["id"] for job in (await two.get(JOBS)).json()["jobs"]} == ids
        job = ids.pop()
        cancelled = await asyncio.gather(
            *(client.post(f"{JOBS}/{job}:cancel") for client in (one, two) * 4)
        )
        assert {(response.status_code, response.json()["version"]) for response in cancelled} == {
            (200, 2)
        }
        digest = "sha256:" + hashlib.sha256(b"data").hexdigest()
        assert (await one.put(f"/api/v1/blobs/{digest}", content=b"data")).status_code == 201
        assert (await two.get(f"/api/v1/blobs/{digest}")).content == b"data"
        token = (await one.post("/api/v1/tokens", json={"name": "ci", "role": "viewer"})).json()[
            "token"
        ]
        async with other.client(token) as viewer:
            assert (await viewer.get(JOBS)).status_code == 200
            assert (await viewer.post(JOBS, json=SPEC)).status_code == 403


async def test_a_client_that_leaves_makes_room_for_the_next(processes, bus, nats_server, valkey):
    gateway = await processes(nats_server.url, valkey.url, max_followers="1").ready()
    async with gateway.client() as client:
        job = await submit(client)
        await ship(bus, job, range(1, 3))
        for _ in range(3):
            assert len(await read_sse(client, f"{JOBS}/{job}/logs", stop_after=2)) == 2
            for _ in range(50):
                async with client.stream("GET", f"{JOBS}/{job}/logs", headers=SSE) as response:
                    if response.status_code == 200:
                        break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError("the follower that left still holds its place")


async def test_a_stop_ends_followers_and_the_process_soon(gateway, client):
    job = await submit(client)
    followers = [
        asyncio.ensure_future(read_sse(client, f"{JOBS}/{job}/{what}"))
        for what in ("logs", "events")
    ]
    await asyncio.sleep(0.5)
    start = time.monotonic()
    gateway.terminate()
    await asyncio.sleep(0.15)
    async with gateway.client() as another:
        ready = await another.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "stopping")
    assert await gateway.ended() == 0
    assert time.monotonic() - start < 9
    for found in await asyncio.gather(*followers):
        assert "end" not in [event for event, _, _ in found]


async def test_a_stop_does_not_wait_for_a_client_that_sends_nothing(gateway, client):
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"PUT /api/v1/blobs/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n")
    await writer.drain()
    start = time.monotonic()
    gateway.terminate()
    assert await gateway.ended() == 0
    assert time.monotonic() - start < 9
    writer.close()


async def test_a_port_in_use_is_one_clear_line(processes, bus, nats_server, valkey):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        gateway = processes(nats_server.url, valkey.url, http_port=str(port))
        assert await gateway.ended() == 2
    text = gateway.log.read_text()
    assert f"port {port} on 127.0.0.1 is in use" in text
    assert "FRENZY_HTTP_PORT" in text
    assert "Traceback" not in text


async def test_wrong_settings_are_named(processes, bus, nats_server, valkey):
    gateway = processes(nats_server.url, valkey.url, http_port="70000", drain_s="x")
    assert await gateway.ended() == 2
    text = gateway.log.read_text()
    assert "FRENZY_HTTP_PORT" in text
    assert "FRENZY_DRAIN_S" in text
    gateway = processes(nats_server.url, valkey.url, admin_token="secret")
    assert await gateway.ended() == 2
    assert "FRENZY_ADMIN_TOKEN" in gateway.log.read_text()


async def test_missing_streams_stop_the_start(processes, nats_url, valkey):
    gateway = processes(nats_url, valkey.url)
    assert await gateway.ended() == 2
    assert "FRENZY_EVENTS" in gateway.log.read_text()


async def test_a_body_that_is_too_large_is_refused_on_the_wire(client):
    async def body(mebibytes):
        for _ in range(mebibytes * 16):
            yield b" " * 65_536

    for content in (b" " * 5 * 1024**2, body(5)):
        response = await client.post(
            JOBS, content=content, headers={"Content-Type": "application/json"}
        )
        assert (response.status_code, response.json()["code"]) == (413, "payload_too_large")
    with contextlib.suppress(httpx.TransportError):  # far too large: the connection may be reset
        response = await client.post(
            JOBS, content=body(100), headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 413
    assert (await client.get("/healthz")).status_code == 200


async def test_no_secret_reaches_the_log_or_the_trace(gateway, client, tmp_path):
    await submit(client)
    await client.get(JOBS, headers={"Authorization": "Bearer frz_000000000000_" + "a" * 64})
    made = (await client.post("/api/v1/tokens", json={"name": "x"})).json()["token"]
    gateway.terminate()
    await gateway.ended()
    text = gateway.log.read_text() + (tmp_path / "trace.jsonl").read_text()
    assert '"POST /api/v1/jobs"' in text
    for secret in (client.headers["authorization"].split("_")[2], made.split("_")[2], "a" * 64):
        assert secret not in text
