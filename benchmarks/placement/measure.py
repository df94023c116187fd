"""Submit one job at a time to an idle cluster and time its `placed` event."""

import asyncio
import time

import httpx
from benchmarks.placement.servers import ControlPlane
from tests.support.scheduler import LiveAgent

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.messages import subjects
from frenzy_shared.messages.envelope import CloudEvent

SPEC = {
    "model": {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "vocab_size": 256,
    },
    "data": "node:/usr/share/dict/words",
    "sequence_length": 64,
    "global_batch_size": 8,
    "max_steps": 10,
}


async def latencies(plane: ControlPlane, jobs: int) -> list[float]:
    """Return seconds from sending the request to receiving `placed` from JetStream, per job."""
    bus = await NatsBus.connect(plane.nats.url, name="benchmark")
    agent = LiveAgent(bus, "node-a", kind="rtx")
    agent.limit = "prepare"
    living = asyncio.create_task(agent.live())
    headers = {"Authorization": f"Bearer {plane.token}"}
    try:
        async with httpx.AsyncClient(base_url=plane.api, headers=headers) as client:
            await _until_up(client)
            return await _measure(bus, client, jobs)
    finally:
        agent.over = True
        await living
        await bus.close()


async def _measure(bus: NatsBus, client: httpx.AsyncClient, jobs: int) -> list[float]:
    placed: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    async def read() -> None:
        kind = subjects.job_events_of_kind("placed")
        async for message in bus.read(subjects.EVENTS_STREAM, kind, after_sequence=0):
            if message is not None:
                event = CloudEvent.decode(message.payload)
                placed.put_nowait((event.subject.removeprefix("job:"), time.perf_counter()))

    reader = asyncio.create_task(read())
    seconds = []
    try:
        for number in range(jobs):
            sent = time.perf_counter()
            reply = await client.post(
                "/api/v1/jobs", json=SPEC, headers={"Idempotency-Key": f"bench-{number}"}
            )
            reply.raise_for_status()
            job = reply.json()["id"]
            name, received = await asyncio.wait_for(placed.get(), 30)
            assert name == job, f"{name} was placed, not {job}"
            seconds.append(received - sent)
            await _free(client, job)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    return seconds


async def _free(client: httpx.AsyncClient, job: str) -> None:
    (await client.post(f"/api/v1/jobs/{job}:cancel")).raise_for_status()
    for _ in range(500):
        if (await client.get(f"/api/v1/jobs/{job}")).json()["state"] == "CANCELLED":
            return
        await asyncio.sleep(0.02)
    raise RuntimeError(f"job {job} was not cancelled")


async def _until_up(client: httpx.AsyncClient) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        nodes = (await client.get("/api/v1/nodes")).json()["nodes"]
        if nodes and nodes[0]["state"] == "UP":
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("the node did not come up")
