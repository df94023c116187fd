"""What every bus does."""

import asyncio
import contextlib
import time

import pytest
from tests.contract.bus.conftest import Connect
from tests.support.inbox import Inbox

from frenzy_shared.bus.delivery import MAX_DELIVERIES
from frenzy_shared.bus.port import Bus, Message, Poison
from frenzy_shared.errors import Misconfigured, PayloadTooLarge, Unavailable
from frenzy_shared.messages import subjects

SUBJECT = subjects.job_event("p", "submitted", "j1")
EVENTS = subjects.EVENTS_STREAM


async def stored(bus: Bus, stream: str, after: int = 0) -> list[Message]:
    """Everything in a stream."""
    last = await bus.last_sequence(stream)
    found: list[Message] = []
    reader = bus.read(stream, f"{subjects.ROOT}.>", after_sequence=after)
    async with contextlib.aclosing(reader), asyncio.timeout(20):
        while last > (found[-1].sequence if found else after):
            found += filter(None, [await anext(reader)])
    return found


async def test_a_published_message_is_stored_with_its_headers(bus: Bus) -> None:
    published = await bus.publish(SUBJECT, b"1", message_id="a", headers={"traceparent": "00-x"})

    assert (published.sequence, published.duplicate) == (1, False)
    assert await bus.last_sequence(EVENTS) == 1
    [message] = await stored(bus, EVENTS)
    assert (message.subject, message.payload, message.stream) == (SUBJECT, b"1", EVENTS)
    assert message.headers["traceparent"] == "00-x"
    assert (message.sequence, message.deliveries) == (1, 1)


async def test_the_same_message_id_is_stored_once(bus: Bus) -> None:
    await bus.publish(SUBJECT, b"1", message_id="a")
    again = await bus.publish(SUBJECT, b"1", message_id="a")

    assert (again.sequence, again.duplicate) == (1, True)
    assert len(await stored(bus, EVENTS)) == 1


async def test_last_sequence_of_the_messages_that_match(bus: Bus) -> None:
    for number, kind in enumerate(("submitted", "planned", "submitted", "placed"), start=1):
        await bus.publish(subjects.job_event("p", kind, "j"), b"x", message_id=str(number))
    assert await bus.last_sequence(EVENTS, subjects.job_events_of_kind("submitted")) == 3
    assert await bus.last_sequence(EVENTS, subjects.job_event("p", "planned", "j")) == 2
    assert await bus.last_sequence(EVENTS, subjects.job_events("p", "other")) == 0


async def test_last_sequence_of_an_empty_stream_is_zero(bus: Bus) -> None:
    assert await bus.last_sequence(EVENTS) == 0


async def test_a_removed_message_is_gone_and_the_others_stay(bus: Bus) -> None:
    for number in (1, 2, 3):
        await bus.publish(SUBJECT, b"%d" % number, message_id=str(number))
    (_, second, _) = await stored(bus, EVENTS)
    assert second.time_ms > 1_700_000_000_000
    assert await bus.remove(EVENTS, second.sequence)
    assert not await bus.remove(EVENTS, second.sequence)
    assert not await bus.remove(EVENTS, 99)
    assert [message.payload for message in await stored(bus, EVENTS, after=1)] == [b"3"]


async def test_publishing_where_no_stream_listens_is_refused(bus: Bus) -> None:
    with pytest.raises(Unavailable, match="no stream"):
        await bus.publish("elsewhere", b"1", message_id="a")


async def test_a_payload_over_the_limit_is_refused(bus: Bus) -> None:
    with pytest.raises(PayloadTooLarge):
        await bus.publish(SUBJECT, b"x" * (1024**2 + 1), message_id="a")
    with pytest.raises(PayloadTooLarge):
        await bus.emit("frenzy.v1.tel.p.j", b"x" * (1024**2 + 1))


async def test_a_stream_that_does_not_exist_is_unavailable(connect: Connect) -> None:
    bus = await connect()
    with pytest.raises(Unavailable):
        await bus.publish(SUBJECT, b"1", message_id="a")
    with pytest.raises(Unavailable):
        await bus.last_sequence(EVENTS)
    with pytest.raises(Unavailable):
        await bus.consume(EVENTS, "d", Inbox(), filter_subject=subjects.ALL_EVENTS)
    with pytest.raises(Unavailable):
        await anext(bus.read(EVENTS, subjects.ALL_EVENTS, after_sequence=0))


async def test_streams_are_verified(connect: Connect) -> None:
    bus = await connect()
    with pytest.raises(Misconfigured, match=f"{EVENTS} does not exist"):
        await bus.verify_streams()
    await bus.ensure_streams()
    await bus.ensure_streams()
    await bus.verify_streams()


async def test_a_durable_gets_old_and_new_messages_in_order(bus: Bus) -> None:
    inbox = Inbox()
    for number in range(5):
        await bus.publish(SUBJECT, b"%d" % number, message_id=f"m{number}")
    await bus.consume(EVENTS, "d", inbox, filter_subject=subjects.ALL_EVENTS)
    for number in range(5, 10):
        await bus.publish(SUBJECT, b"%d" % number, message_id=f"m{number}")

    await inbox.wait_for(10)
    assert inbox.payloads == [b"%d" % number for number in range(10)]
    assert [message.sequence for message in inbox.messages] == list(range(1, 11))


async def test_a_durable_sees_only_its_filter(bus: Bus) -> None:
    inbox = Inbox()
    await bus.publish(subjects.job_event("p", "placed", "j1"), b"no", message_id="a")
    await bus.publish(SUBJECT, b"yes", message_id="b")
    await bus.consume(EVENTS, "d", inbox, filter_subject=subjects.JOBS_SUBMITTED)

    await inbox.wait_for(1)
    assert inbox.payloads == [b"yes"]


async def test_a_durable_goes_on_where_it_stopped(bus: Bus) -> None:
    first, second = Inbox(), Inbox()
    await bus.publish(SUBJECT, b"1", message_id="a")
    consumer = await bus.consume(EVENTS, "d", first, filter_subject=subjects.ALL_EVENTS)
    await first.wait_for(1)
    await consumer.stop()
    await bus.publish(SUBJECT, b"2", message_id="b")
    await bus.consume(EVENTS, "d", second, filter_subject=subjects.ALL_EVENTS)

    await second.wait_for(1)
    assert (first.payloads, second.payloads) == ([b"1"], [b"2"])


async def test_two_durables_get_everything_each(bus: Bus) -> None:
    one, two = Inbox(), Inbox()
    await bus.consume(EVENTS, "one", one, filter_subject=subjects.ALL_EVENTS)
    await bus.consume(EVENTS, "two", two, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"1", message_id="a")

    await one.wait_for(1)
    await two.wait_for(1)


async def test_replicas_share_a_durable(bus: Bus, connect: Connect) -> None:
    """A replica that is busy takes nothing that the other could do."""
    other = await connect()
    release = asyncio.Event()
    busy: list[bytes] = []
    free = Inbox()

    async def slow(message: Message) -> None:
        busy.append(message.payload)
        await release.wait()

    first = await bus.consume(EVENTS, "d", slow, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"0", message_id="m0")
    async with asyncio.timeout(10):
        while not busy:
            await asyncio.sleep(0.01)
    await other.consume(EVENTS, "d", free, filter_subject=subjects.ALL_EVENTS)
    for number in range(1, 20):
        await bus.publish(SUBJECT, b"%d" % number, message_id=f"m{number}")

    await free.wait_for(19)
    release.set()
    await first.stop()
    assert busy == [b"0"]
    assert free.payloads == [b"%d" % number for number in range(1, 20)]


async def test_a_durable_with_another_filter_is_refused(bus: Bus) -> None:
    await bus.consume(EVENTS, "d", Inbox(), filter_subject=subjects.ALL_EVENTS)
    with pytest.raises(Misconfigured, match="filter_subject"):
        await bus.consume(EVENTS, "d", Inbox(), filter_subject=subjects.JOBS_SUBMITTED)


async def test_a_failed_message_comes_again(bus: Bus) -> None:
    inbox = Inbox()
    inbox.failures = [ValueError("not now"), Unavailable("nor now")]
    await bus.consume(EVENTS, "d", inbox, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"1", message_id="a")

    await inbox.wait_for(3)
    assert [message.deliveries for message in inbox.messages] == [1, 2, 3]
    assert await bus.last_sequence(subjects.DLQ_STREAM) == 0


async def test_a_failed_message_does_not_hold_up_the_others(bus: Bus) -> None:
    inbox = Inbox()
    inbox.failures = [ValueError("not now")]
    await bus.publish(SUBJECT, b"1", message_id="a")
    await bus.publish(SUBJECT, b"2", message_id="b")
    await bus.consume(EVENTS, "d", inbox, filter_subject=subjects.ALL_EVENTS)

    await inbox.wait_for(3)
    assert sorted(inbox.payloads) == [b"1", b"1", b"2"]


async def test_poison_is_dead_lettered_whole_and_once(bus: Bus) -> None:
    inbox = Inbox()
    inbox.failures = [Poison("not JSON:\nline 1 – bad")]
    await bus.publish(SUBJECT, b"{", message_id="a", headers={"X": "y"})
    await bus.publish(SUBJECT, b"2", message_id="b")
    await bus.consume(EVENTS, "d", inbox, filter_subject=subjects.ALL_EVENTS)

    await inbox.wait_for(2)
    [letter] = await stored(bus, subjects.DLQ_STREAM)
    assert letter.subject == subjects.dead_letter(EVENTS, "d")
    assert letter.payload == b"{"
    wanted = {
        "X": "y",
        "Frenzy-Subject": SUBJECT,
        "Frenzy-Stream": EVENTS,
        "Frenzy-Sequence": "1",
        "Frenzy-Consumer": "d",
        "Frenzy-Deliveries": "1",
        "Frenzy-Message-Id": "a",
        "Frenzy-Reason": "not JSON: line 1 \\u2013 bad",
        "Nats-Msg-Id": f"{EVENTS}:1:d",
    }
    assert wanted.items() <= dict(letter.headers).items()
    assert inbox.payloads == [b"{", b"2"]


async def test_two_durables_dead_letter_the_same_message(bus: Bus) -> None:
    for durable in ("one", "two"):
        inbox = Inbox()
        inbox.failures = [Poison("no")]
        await bus.consume(EVENTS, durable, inbox, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"1", message_id="a")

    async with asyncio.timeout(10):
        while await bus.last_sequence(subjects.DLQ_STREAM) < 2:
            await asyncio.sleep(0.02)


async def test_a_message_that_always_fails_is_dead_lettered(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frenzy_shared.bus.nats_consumer.redelivery_delay_s", lambda _: 0.001)
    inbox = Inbox()
    inbox.failures = [RuntimeError("always")] * 50
    await bus.consume(EVENTS, "d", inbox, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"1", message_id="a")

    await inbox.wait_for(MAX_DELIVERIES)
    async with asyncio.timeout(10):
        while await bus.last_sequence(subjects.DLQ_STREAM) < 1:
            await asyncio.sleep(0.02)
    [letter] = await stored(bus, subjects.DLQ_STREAM)
    assert letter.headers["Frenzy-Deliveries"] == str(MAX_DELIVERIES)
    assert "always" in letter.headers["Frenzy-Reason"]
    assert len(inbox.messages) == MAX_DELIVERIES


async def test_stop_waits_for_the_running_handler(bus: Bus) -> None:
    entered, done = asyncio.Event(), []

    async def handler(message: Message) -> None:
        entered.set()
        await asyncio.sleep(0.05)
        done.append(message.payload)

    consumer = await bus.consume(EVENTS, "d", handler, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"1", message_id="a")
    await entered.wait()
    await consumer.stop()
    assert done == [b"1"]


async def test_stop_does_not_wait_for_messages(bus: Bus) -> None:
    consumer = await bus.consume(EVENTS, "d", Inbox(), filter_subject=subjects.ALL_EVENTS)
    await asyncio.sleep(0.05)
    start = time.monotonic()
    await consumer.stop()
    assert time.monotonic() - start < 1


async def test_read_starts_after_a_sequence_and_follows(bus: Bus) -> None:
    for number in range(3):
        await bus.publish(SUBJECT, b"%d" % number, message_id=f"m{number}")
    async with contextlib.aclosing(
        bus.read(EVENTS, subjects.job_events("p", "j1"), after_sequence=1)
    ) as reader:
        assert [(await anext(reader)).payload for _ in range(2)] == [b"1", b"2"]
        start = time.monotonic()
        assert await anext(reader) is None
        assert 0.5 < time.monotonic() - start < 2
        await bus.publish(subjects.job_event("p", "placed", "other"), b"no", message_id="x")
        await bus.publish(subjects.job_event("p", "placed", "j1"), b"3", message_id="y")
        message = await anext(reader)
        while message is None:
            message = await anext(reader)
        assert (message.payload, message.sequence) == (b"3", 5)


async def test_read_hands_on_a_new_message_at_once(bus: Bus) -> None:
    async with contextlib.aclosing(
        bus.read(EVENTS, subjects.ALL_EVENTS, after_sequence=0)
    ) as reader:
        assert await anext(reader) is None
        for number in range(3):
            waiting = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0.05)
            start = time.monotonic()
            await bus.publish(SUBJECT, b"", message_id=f"m{number}")
            assert (await waiting) is not None
            assert time.monotonic() - start < 0.5


async def test_read_keeps_up_with_many(bus: Bus) -> None:
    await asyncio.gather(
        *(bus.publish(SUBJECT, b"", message_id=f"m{number}") for number in range(600))
    )
    found = await stored(bus, EVENTS)
    assert [message.sequence for message in found] == list(range(1, 601))


async def test_a_durable_for_others_knows_what_waits_for_them(bus: Bus) -> None:
    await bus.publish(SUBJECT, b"1", message_id="a")
    filters = (subjects.job_events_of_kind("submitted"), subjects.node_event("lost", "*"))
    assert await bus.durable_state(EVENTS, "integration-x") is None
    await bus.add_durable(EVENTS, "integration-x", filters, history=True)
    await bus.add_durable(EVENTS, "integration-x", filters, history=True)  # the same again
    await bus.add_durable(EVENTS, "integration-y", filters, history=False)
    await bus.publish(subjects.node_event("lost", "n1"), b"2", message_id="b")
    await bus.publish(subjects.job_event("p", "placed", "j1"), b"3", message_id="c")
    states = [await bus.durable_state(EVENTS, f"integration-{name}") for name in "xy"]
    assert [(state.pending, state.unacknowledged) for state in states] == [(2, 0), (1, 0)]
    with pytest.raises(Unavailable, match="exist"):
        await bus.add_durable(EVENTS, "integration-x", filters[:1], history=True)
    assert await bus.remove_durable(EVENTS, "integration-x")
    assert not await bus.remove_durable(EVENTS, "integration-x")


async def test_decisions_are_kept_one_by_one_and_the_newest_counts(bus: Bus) -> None:
    for number, name in enumerate(("t1", "t2", "t1")):
        await bus.publish(subjects.decision("token", name), b"%d" % number, message_id=str(number))
    stream = subjects.DECISIONS_STREAM
    assert [message.payload for message in await stored(bus, stream)] == [b"1", b"2"]
    assert await bus.last_sequence(stream, subjects.ALL_DECISIONS) == 3
