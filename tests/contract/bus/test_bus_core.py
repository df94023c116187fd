"""What every bus does with core messages: lossy, fast, request and reply."""

import asyncio

import pytest
from tests.contract.bus.conftest import Connect
from tests.support.inbox import Inbox

from frenzy_shared.bus.port import Bus, Message
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects

SUBJECT = subjects.job_event("p", "submitted", "j1")
EVENTS = subjects.EVENTS_STREAM


async def test_core_messages_reach_every_subscriber_in_order(bus: Bus, connect: Connect) -> None:
    one, two = Inbox(), Inbox()
    await bus.subscribe("frenzy.v1.node.*.desired", one)
    await (await connect()).subscribe(subjects.desired("n1"), two)
    for number in range(10):
        await bus.emit(subjects.desired("n1"), b"%d" % number, headers={"a": "b"})
    await bus.emit(subjects.desired("n2"), b"else")

    await one.wait_for(11)
    await two.wait_for(10)
    assert two.payloads == [b"%d" % number for number in range(10)]
    assert one.payloads == [*two.payloads, b"else"]
    assert (one.messages[0].sequence, one.messages[0].headers["a"]) == (0, "b")


async def test_a_queue_group_shares_core_messages(bus: Bus, connect: Connect) -> None:
    one, two = Inbox(), Inbox()
    await bus.subscribe("frenzy.v1.tel.>", one, queue="q")
    await (await connect()).subscribe("frenzy.v1.tel.>", two, queue="q")
    for number in range(40):
        await bus.emit(subjects.telemetry("p", "j"), b"%d" % number)

    async with asyncio.timeout(10):
        while len(one.messages) + len(two.messages) < 40:
            await asyncio.sleep(0.01)
    assert one.messages
    assert two.messages


async def test_a_handler_that_fails_goes_on_with_the_next(bus: Bus) -> None:
    inbox = Inbox()
    inbox.failures = [ValueError("no")]
    await bus.subscribe("frenzy.v1.tel.>", inbox)
    await bus.emit(subjects.telemetry("p", "j"), b"1")
    await bus.emit(subjects.telemetry("p", "j"), b"2")

    await inbox.wait_for(2)


async def test_a_stopped_subscription_hears_nothing(bus: Bus) -> None:
    inbox, witness = Inbox(), Inbox()
    await (await bus.subscribe("frenzy.v1.tel.>", inbox)).stop()
    await bus.subscribe("frenzy.v1.tel.>", witness)
    await bus.emit(subjects.telemetry("p", "j"), b"1")

    await witness.wait_for(1)
    assert inbox.messages == []


async def test_a_request_is_answered(bus: Bus, connect: Connect) -> None:
    async def double(message: Message) -> bytes:
        return message.payload * 2 + message.headers["x"].encode()

    await (await connect()).serve(subjects.MARP_PLAN, double, queue="marp")
    answer = await bus.request(subjects.MARP_PLAN, b"ab", timeout_s=5, headers={"x": "y"})
    assert answer == b"ababy"


async def test_the_one_who_is_not_silent_answers(bus: Bus, connect: Connect) -> None:
    async def silent(_: Message) -> None:
        return None

    async def holder(_: Message) -> bytes:
        return b"desired"

    await bus.serve(subjects.HEARTBEATS, silent)
    await (await connect()).serve(subjects.HEARTBEATS, holder)
    assert await bus.request(subjects.heartbeat("n1"), b"", timeout_s=5) == b"desired"


async def test_silence_is_unavailable(bus: Bus) -> None:
    async def silent(_: Message) -> None:
        return None

    with pytest.raises(Unavailable, match="nobody"):
        await bus.request(subjects.heartbeat("n1"), b"", timeout_s=5)
    await bus.serve(subjects.HEARTBEATS, silent)
    with pytest.raises(Unavailable, match="no answer"):
        await bus.request(subjects.heartbeat("n1"), b"", timeout_s=0.1)


async def test_a_responder_that_fails_is_silent(bus: Bus) -> None:
    async def broken(_: Message) -> bytes:
        raise ValueError("no")

    await bus.serve(subjects.MARP_PLAN, broken)
    with pytest.raises(Unavailable):
        await bus.request(subjects.MARP_PLAN, b"", timeout_s=0.2)


async def test_a_slow_answer_holds_up_no_other(bus: Bus) -> None:
    release = asyncio.Event()

    async def responder(message: Message) -> bytes:
        if message.payload == b"slow":
            await release.wait()
        return message.payload

    await bus.serve(subjects.MARP_PLAN, responder)
    slow = asyncio.ensure_future(bus.request(subjects.MARP_PLAN, b"slow", timeout_s=10))
    await asyncio.sleep(0.02)
    assert await bus.request(subjects.MARP_PLAN, b"fast", timeout_s=5) == b"fast"
    release.set()
    assert await slow == b"slow"


async def test_a_closed_bus_refuses(connect: Connect) -> None:
    bus = await connect()
    assert bus.connected
    await bus.close()
    assert not bus.connected
    with pytest.raises(Unavailable):
        await bus.publish(SUBJECT, b"1", message_id="a")
    with pytest.raises(Unavailable):
        await bus.emit(SUBJECT, b"1")
    with pytest.raises(Unavailable):
        await bus.request(SUBJECT, b"1", timeout_s=0.1)
