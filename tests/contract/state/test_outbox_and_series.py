"""The outbox keeps order and waits for its relay; series keep the newest points."""

import asyncio
import time

from tests.support.state import move, queue, submit

from frenzy_shared.state.port import Change, OutboxMessage


async def test_entries_come_in_the_order_of_changes(store):
    await queue(store, "j1")
    await queue(store, "j2")
    await move(store, "j1", "CANCELLED")
    entries = await store.read_outbox("", 100)
    assert [entry.message_id for entry in entries] == [
        "j1:1:0",
        "j1:2:0",
        "j2:1:0",
        "j2:2:0",
        "j1:3:0",
    ]
    cursors = [entry.cursor for entry in entries]
    assert len(set(cursors)) == len(cursors)


async def test_reading_continues_after_a_cursor(store):
    for index in range(5):
        await submit(store, f"j{index}")
    first = await store.read_outbox("", 2)
    rest = await store.read_outbox(first[-1].cursor, 100)
    assert [entry.entity for entry in (*first, *rest)] == [f"job:j{index}" for index in range(5)]
    assert await store.read_outbox(rest[-1].cursor, 100) == ()


async def test_the_cursor_only_moves_forward(store):
    for index in range(3):
        await submit(store, f"j{index}")
    one, two, three = await store.read_outbox("", 3)
    await store.advance_outbox(two.cursor)
    assert await store.read_outbox("", 9) == (three,)
    await store.advance_outbox(one.cursor)
    assert await store.read_outbox("", 9) == (three,)
    assert await store.read_outbox(one.cursor, 9) == (two, three)


async def test_health_counts_what_is_not_published(store):
    assert (await store.health()).outbox_lag == 0
    for index in range(3):
        await submit(store, f"j{index}")
    assert (await store.health()).outbox_lag == 3
    entries = await store.read_outbox("", 2)
    await store.advance_outbox(entries[-1].cursor)
    health = await store.health()
    assert (health.reachable, health.outbox_lag, health.memory_used_ratio) == (True, 1, 0.0)


async def test_waiting_returns_at_once_when_there_is_something(store):
    await submit(store, "j1")
    assert await store.wait_outbox("", 5)
    (entry,) = await store.read_outbox("", 9)
    assert not await store.wait_outbox(entry.cursor, 0.01)
    await store.advance_outbox(entry.cursor)
    assert not await store.wait_outbox("", 0.01)


async def test_waiting_ends_with_the_next_entry(store):
    waiting = asyncio.ensure_future(store.wait_outbox("", 10))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    start = time.monotonic()
    await submit(store, "j1")
    assert await waiting
    assert time.monotonic() - start < 1


async def test_one_wait_does_not_hold_up_other_calls(store):
    waits = [asyncio.ensure_future(store.wait_outbox("", 10)) for _ in range(2)]
    await asyncio.sleep(0.02)
    assert await store.job("none") is None
    await submit(store, "j1")
    assert await asyncio.gather(*waits) == [True, True]


async def test_the_trace_of_the_caller_travels(store):
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    with provider.get_tracer("t").start_as_current_span("span") as span:
        await submit(store, "j1", traceparent="00-of-the-record")
        trace_id = f"{span.get_span_context().trace_id:032x}"
    (entry,) = await store.read_outbox("", 9)
    assert entry.traceparent.split("-")[1] == trace_id
    provider.shutdown()


async def test_data_is_carried_as_it_is(store):
    await submit(store, "j1")
    data = {"a": [], "b": {}, "c": [1.5, None, "é\u2028"], "d": 0.1 + 0.2, "e": 2**52 + 1}
    change = Change(
        entity="job:j1",
        patch={"last_step": 1},
        outbox=[OutboxMessage(subject="s", type="progressed", data=data)],
    )
    await store.apply("op", change)
    assert (await store.read_outbox("", 9))[-1].data == data


async def test_series_keep_the_newest(store):
    await submit(store, "j1")
    points = [{"step": index, "loss": 1 / (index + 1), "rank": 0} for index in range(10)]
    await store.append_series("j1", points[:4], keep=6)
    await store.append_series("j1", points[4:], keep=6)
    assert await store.series("j1") == tuple(points[4:])
    await store.append_series("j1", [])
    assert len(await store.series("j1")) == 6
