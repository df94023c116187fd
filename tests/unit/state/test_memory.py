"""What only the double can show: time that moves by days."""

import asyncio

from tests.support.state import FakeClock, submit

from frenzy_shared.state.memory import MemoryStore

DAY_S = 86_400


async def test_published_entries_are_kept_for_a_day():
    clock = FakeClock()
    store = MemoryStore(clock)
    await submit(store, "old")
    (old,) = await store.read_outbox("", 9)
    await store.advance_outbox(old.cursor)
    clock.advance(DAY_S - 1)
    await submit(store, "new")
    await store.advance_outbox(old.cursor)
    assert len(await store.read_outbox("0", 9)) == 2
    clock.advance(2)
    await store.advance_outbox(old.cursor)
    assert [entry.entity for entry in await store.read_outbox("0", 9)] == ["job:new"]


async def test_unpublished_entries_are_kept_for_ever():
    clock = FakeClock()
    store = MemoryStore(clock)
    await submit(store, "old")
    clock.advance(30 * DAY_S)
    await store.advance_outbox("0")
    assert len(await store.read_outbox("", 9)) == 1


async def test_what_is_read_cannot_change_what_is_stored():
    store = MemoryStore(FakeClock())
    spec = {"env": {"A": "1"}}
    await submit(store, "j1", spec=spec)
    spec["env"]["A"] = "2"
    (await store.spec("j1"))["env"]["A"] = "3"
    assert await store.spec("j1") == {"env": {"A": "1"}}


async def test_a_cancelled_wait_harms_no_other():
    store = MemoryStore(FakeClock())
    first, second = (asyncio.ensure_future(store.wait_outbox("", 5)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    await submit(store, "j1")
    assert await second
