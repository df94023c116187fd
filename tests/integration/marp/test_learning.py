"""Two replicas as processes on real servers: what one learns from a run, both plan with."""

import asyncio
import os
import subprocess
import sys
from contextlib import AsyncExitStack

from tests.support.state import submission

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.outbox import OutboxRelay
from frenzy_shared.state.port import Change, NodeRegistration, OutboxMessage
from frenzy_shared.state.redis import RedisStore

# The script has its own mind about memory: only runs can teach what it takes.
SPEC = parse_spec(
    {
        "model": "gpt2-tiny",
        "data": "node:/text",
        "workdir": "node:/code",
        "entrypoint": {"script": "train.py"},
        "global_batch_size": 4,
    }
)


async def test_a_run_changes_the_next_prediction_of_every_replica(nats_url, valkey, tmp_path):
    async with AsyncExitStack() as stack:
        store = await RedisStore.open(valkey.url)
        stack.push_async_callback(store.close)
        bus = await NatsBus.connect(nats_url, name="test")
        stack.push_async_callback(bus.close)
        await bus.ensure_streams()
        device = Device(id="gpu0", kind="emulated-a", memory_bytes=2**28, emulated=True)
        await store.register_node(
            "register",
            NodeRegistration(node="node-a", boot_id="b", address="127.0.1.1", devices=(device,)),
        )
        relay = OutboxRelay(store=store, bus=bus)
        environment = {**os.environ, "FRENZY_NATS_URL": nats_url, "FRENZY_REDIS_URL": valkey.url}
        for replica in range(2):
            log = stack.enter_context((tmp_path / f"log-{replica}").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", "frenzy_marp"], env=environment, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        await store.submit("submit", submission("a", spec=SPEC.model_dump(mode="json")))
        async with asyncio.timeout(60):
            while (await store.job("a")).state is not JobState.QUEUED:
                await relay.step()
                await asyncio.sleep(0.05)
            ran = (await store.plans("a")).plans[0]
            observed = round(1.4 * ran.memory.allocated.expected)
            await store.apply("end", ended(ran, observed))
            await relay.step()
            in_a_row = 0
            while in_a_row < 20:  # questions go to either replica, by chance
                answer = await bus.request(
                    subjects.MARP_PLAN, PlanRequest(spec=SPEC).encode(), timeout_s=5
                )
                plans = PlanReply.decode(answer).plans.plans
                in_a_row = in_a_row + 1 if plans[0].memory.runs == 1 else 0
                await asyncio.sleep(0.02)
        same = next(plan for plan in plans if plan.id == ran.id)
        assert same.memory.allocated.expected > ran.memory.allocated.expected
        assert same.memory.allocated.high >= observed


def ended(plan, observed):
    """The attempt of job a is over on its one node, with a peak of ``observed`` bytes."""
    outcome = {
        "rank": 0,
        "exit_code": 0,
        "reason": "Completed",
        "last_step": 50,
        "peak_allocated_bytes": observed,
    }
    devices = [{"node": "node-a", "device": "gpu0", "epoch": 1}]
    return Change(
        entity="job:a",
        patch={
            "state": "STOPPING",
            "attempt": 1,
            "placement": {"plan": plan.id, "kind": plan.kind, "devices": devices},
            "outcomes": [outcome],
        },
        outbox=[
            OutboxMessage(subject=subjects.job_event("default", "updated", "a"), type="updated")
        ],
    )
