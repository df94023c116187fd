"""The relay: in order, at least once, never skipping; repetitions vanish in the stream."""

import asyncio
import contextlib
import json
import statistics
import time

import pytest
from tests.support.state import event, move, queue, registration, submit

from frenzy_shared.bus.port import Published
from frenzy_shared.errors import PayloadTooLarge, Unavailable
from frenzy_shared.messages.envelope import CloudEvent
from frenzy_shared.messages.subjects import EVENTS_STREAM
from frenzy_shared.outbox import OutboxRelay, cloud_event
from frenzy_shared.state.port import Change, OutboxMessage


class FailingBus:
    """Publishes on a real bus, except where ``fails`` says so by the number of the call."""

    def __init__(self, bus, fails=lambda call: False, error=Unavailable):
        self._bus, self._fails, self._error = bus, fails, error
        self.calls = 0

    async def publish(self, subject, payload, *, message_id, headers=None) -> Published:
        self.calls += 1
        if self._fails(self.calls):
            raise self._error("no")
        return await self._bus.publish(subject, payload, message_id=message_id, headers=headers)


def ids(messages) -> list[str]:
    return [json.loads(message.payload)["id"] for message in messages]


async def test_publishes_cloud_events_in_order(world):
    await submit(world.store, "j1", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    await move(world.store, "j1", "QUEUED", message="two plans")
    await world.store.register_node("op", registration("n1"))

    relay = OutboxRelay(store=world.store, bus=world.bus)
    assert await relay.step() == 3
    assert await relay.step() == 0

    first, second = (await world.events())[:2]
    assert first.subject == "frenzy.v1.evt.default.job.submitted.j1"
    assert first.headers["traceparent"] == f"00-{'a' * 32}-{'b' * 16}-01"
    event = CloudEvent.decode(second.payload)
    assert (event.id, event.subject) == ("j1:2:0", "job:j1")
    assert event.type == "dev.frenzy.job.queued.v1"
    assert event.source == "/frenzy/default"
    assert event.traceparent == f"00-{'a' * 32}-{'b' * 16}-01"
    assert event.data["record"]["message"] == "two plans"
    assert event.time.endswith("Z")
    assert await world.bus.last_sequence(EVENTS_STREAM) == 3


async def test_node_events_come_from_the_cluster(world):
    await world.store.register_node("op", registration("n1"))
    (entry,) = await world.store.read_outbox("", 9)
    event = cloud_event(entry)
    assert (event.source, event.type) == ("/frenzy/cluster", "dev.frenzy.node.joined.v1")


async def test_the_host_is_told_what_was_published(world):
    await submit(world.store, "j1")
    await submit(world.store, "j2")
    told = []
    failing = FailingBus(world.bus, lambda call: call == 2)
    relay = OutboxRelay(store=world.store, bus=failing, on_published=told.append)
    with pytest.raises(Unavailable):
        await relay.step()
    assert [entry.entity for entry in told] == ["job:j1"]
    await relay.step()
    assert [entry.entity for entry in told] == ["job:j1", "job:j2"]


async def test_a_failure_is_not_skipped(world):
    for index in range(5):
        await submit(world.store, f"j{index}")
    failing = FailingBus(world.bus, lambda call: call == 3)
    relay = OutboxRelay(store=world.store, bus=failing)
    with pytest.raises(Unavailable):
        await relay.step()
    assert (await world.store.health()).outbox_lag == 3
    assert ids(await world.events()) == ["j0:1:0", "j1:1:0"]
    assert await relay.step() == 3
    assert ids(await world.events()) == [f"j{index}:1:0" for index in range(5)]


async def test_a_crash_between_publishing_and_advancing_repeats_nothing(world):
    for index in range(5):
        await submit(world.store, f"j{index}")

    class Dying:
        read_outbox = world.store.read_outbox

        async def advance_outbox(self, cursor):
            raise SystemExit

    with pytest.raises(SystemExit):
        await OutboxRelay(store=Dying(), bus=world.bus).step()
    assert (await world.store.health()).outbox_lag == 5
    assert await world.bus.last_sequence(EVENTS_STREAM) == 5

    assert await OutboxRelay(store=world.store, bus=world.bus).step() == 5
    assert ids(await world.events()) == [f"j{index}:1:0" for index in range(5)]


async def test_two_relays_at_once_publish_each_event_once(world):
    stop = asyncio.Event()
    relays = [
        OutboxRelay(store=await world.other_store(), bus=world.bus, batch=3) for _ in range(2)
    ]
    loops = [asyncio.ensure_future(relay.run(stop, leading=lambda: True)) for relay in relays]
    for index in range(40):
        await submit(world.store, f"j{index}")
    await until_published(world, 40)
    stop.set()
    await asyncio.gather(*loops)
    assert sorted(ids(await world.events())) == sorted(f"j{index}:1:0" for index in range(40))


async def test_an_event_too_large_for_the_bus_does_not_stop_the_others(world):
    await submit(world.store, "j1")
    big = [{"node": f"n{index}", "device": "d" * 60, "epoch": 1} for index in range(12_000)]
    change = Change(
        entity="job:j1",
        patch={"placement": {"plan": "p", "kind": "k", "devices": big}},
        outbox=[event("placed", "j1")],
    )
    assert (await world.store.apply("op", change)).ok
    await submit(world.store, "j2")
    assert await OutboxRelay(store=world.store, bus=world.bus).step() == 3
    _, placed, after = await world.events()
    record = json.loads(placed.payload)["data"]["record"]
    assert "placement" not in record
    assert (record["id"], record["version"]) == ("j1", 2)
    assert ids([after]) == ["j2:1:0"]


async def test_an_event_that_stays_too_large_is_told(world):
    await submit(world.store, "j1")
    bus = FailingBus(world.bus, lambda call: True, PayloadTooLarge)
    with pytest.raises(PayloadTooLarge):
        await OutboxRelay(store=world.store, bus=bus).step()
    assert (await world.store.health()).outbox_lag == 1


async def test_only_the_leader_relays(world):
    leading = False
    stop = asyncio.Event()
    relay = OutboxRelay(store=world.store, bus=world.bus)
    loop = asyncio.ensure_future(relay.run(stop, leading=lambda: leading))
    await submit(world.store, "j1")
    await asyncio.sleep(0.05)
    assert await world.bus.last_sequence(EVENTS_STREAM) == 0
    leading = True
    await until_published(world, 1)
    stop.set()
    await loop


async def test_goes_on_after_an_outage(world):
    stop = asyncio.Event()
    failing = FailingBus(world.bus, lambda call: call <= 2)
    relay = OutboxRelay(store=world.store, bus=failing)
    loop = asyncio.ensure_future(relay.run(stop, leading=lambda: True))
    await submit(world.store, "j1")
    await until_published(world, 1)
    assert failing.calls == 3
    stop.set()
    await loop


async def test_a_new_entry_is_published_in_milliseconds(world):
    """Idle relays sleep in the store; the target for submit -> placed is p50 < 100 ms in all."""
    stop = asyncio.Event()
    relay = OutboxRelay(store=await world.other_store(), bus=world.bus)
    loop = asyncio.ensure_future(relay.run(stop, leading=lambda: True))
    waits = []
    for index in range(15):
        await asyncio.sleep(0.02)
        await submit(world.store, f"j{index}")
        start = time.monotonic()
        await until_published(world, index + 1)
        waits.append(time.monotonic() - start)
    stop.set()
    await loop
    assert statistics.median(waits) < 0.05


async def test_real_servers_may_die_while_relaying(fresh_valkey, fresh_nats_server):
    from tests.integration.outbox.conftest import World

    from frenzy_shared.bus.nats import NatsBus
    from frenzy_shared.state.redis import RedisStore

    store = await RedisStore.open(fresh_valkey.url)
    bus = await NatsBus.connect(fresh_nats_server.url, name="test")
    await bus.ensure_streams()
    stop = asyncio.Event()
    loop = asyncio.ensure_future(OutboxRelay(store=store, bus=bus).run(stop, leading=lambda: True))
    for number, server in enumerate((fresh_nats_server, fresh_valkey)):
        for index in range(10):
            await queue_patiently(store, f"j{number}-{index}")
            if index == 4:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
    world = World(store, bus, lambda: store)
    await until_published(world, 40)
    stop.set()
    await loop

    published = ids(await world.events())
    assert len(published) == len(set(published)) == 40
    entries = await store.read_outbox("0-0", 100)
    assert published == [entry.message_id for entry in entries]
    await bus.close()
    await store.close()


async def queue_patiently(store, job: str) -> None:
    while True:
        with contextlib.suppress(Unavailable):
            return await queue(store, job)


async def until_published(world, count: int) -> None:
    async with asyncio.timeout(20):
        while (await last_sequence(world)) < count:
            await asyncio.sleep(0.002)


async def last_sequence(world) -> int:
    try:
        return await world.bus.last_sequence(EVENTS_STREAM)
    except Unavailable:
        return 0


async def test_messages_beside_events_keep_their_subject(world):
    await submit(world.store, "j1")
    extra = OutboxMessage(subject="frenzy.v1.evt.default.job.oom.j1", type="oom", data={"rank": 1})
    change = Change(
        entity="job:j1", patch={"oom_retries": 1}, outbox=[event("replanned", "j1"), extra]
    )
    await world.store.apply("op", change)
    await OutboxRelay(store=world.store, bus=world.bus).step()
    events = await world.events()
    assert [message.subject.split(".")[5] for message in events] == [
        "submitted",
        "replanned",
        "oom",
    ]
    assert json.loads(events[-1].payload)["data"]["rank"] == 1
