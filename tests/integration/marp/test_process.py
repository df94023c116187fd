"""MARP as its own process, on real servers."""

import asyncio
import os
import signal
import subprocess
import sys

from tests.support.state import submission

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.outbox import OutboxRelay
from frenzy_shared.state.port import NodeRegistration
from frenzy_shared.state.redis import RedisStore

SPEC = {"model": "gpt2-tiny", "data": "node:/text", "global_batch_size": 4}


async def test_the_process_plans_answers_and_ends_on_sigterm(nats_url, valkey, tmp_path):
    store = await RedisStore.open(valkey.url)
    bus = await NatsBus.connect(nats_url, name="test")
    await bus.ensure_streams()
    device = Device(id="gpu0", kind="emulated-a", memory_bytes=2**28, emulated=True)
    await store.register_node(
        "register",
        NodeRegistration(node="node-a", boot_id="b", address="127.0.1.1", devices=(device,)),
    )
    environment = {**os.environ, "FRENZY_NATS_URL": nats_url, "FRENZY_REDIS_URL": valkey.url}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "frenzy_marp"], env=environment, stderr=log
        )
    try:
        spec = parse_spec(SPEC)
        await store.submit("submit", submission("a", spec=spec.model_dump(mode="json")))
        relay = OutboxRelay(store=store, bus=bus)
        async with asyncio.timeout(30):
            while (await store.job("a")).state is not JobState.QUEUED:
                await relay.step()
                await asyncio.sleep(0.05)
        assert (await store.plans("a")).plans[0].kind == "emulated-a"
        answer = await bus.request(subjects.MARP_PLAN, PlanRequest(spec=spec).encode(), timeout_s=5)
        assert PlanReply.decode(answer).plans.feasible
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 15) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        await bus.close()
        await store.close()
