"""kill -9 of the server: what was answered is there, and the same store object goes on."""

import asyncio

import pytest
from tests.support.state import move, queue, submission, submit, up

from frenzy_shared.errors import Unavailable
from frenzy_shared.state.port import Change
from frenzy_shared.state.redis import RedisStore


async def test_answered_changes_survive_kill_9(fresh_valkey):
    store = await RedisStore.open(fresh_valkey.url)
    answered: list[str] = []
    stop = asyncio.Event()

    async def submitter(number: int) -> None:
        for index in range(10_000):
            job = f"j{number}-{index}"
            while True:
                try:
                    result = await store.submit(f"op:{job}", submission(job))
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)
            assert (result.ok, result.id) == (True, job)
            answered.append(job)
            if stop.is_set():
                return

    workers = [asyncio.ensure_future(submitter(number)) for number in range(8)]
    for _ in range(2):
        seen = len(answered)
        while len(answered) < seen + 100:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(fresh_valkey.kill)
        await asyncio.to_thread(fresh_valkey.start)
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*workers)

    assert len(answered) > 200
    records = [await store.job(job) for job in answered]
    assert None not in records
    assert sorted(record.sequence for record in records) == list(range(1, len(answered) + 1))
    events = await store.read_outbox("", 100_000)
    assert sorted(entry.message_id for entry in events) == sorted(f"{job}:1:0" for job in answered)
    await store.close()


async def test_everything_is_there_after_a_restart(fresh_valkey):
    store = await RedisStore.open(fresh_valkey.url)
    await up(store, "n1")
    await queue(store, "j1")
    await store.apply("doc", Change(entity="job:j1", documents={"pending": {"reason": "x"}}))
    await store.append_series("j1", [{"step": 1}])
    before = await contents(store)

    fresh_valkey.kill()
    with pytest.raises(Unavailable, match="cannot be reached") as down:
        await store.job("j1")
    assert any("Valkey server runs" in hint for hint in down.value.suggestions)
    health = await store.health()
    assert (health.reachable, "cannot be reached" in health.detail) == (False, True)
    fresh_valkey.start()

    assert await contents(store) == before
    assert (await move(store, "j1", "CANCELLED")).ok
    assert (await store.health()).reachable
    await store.close()


async def test_a_waiting_relay_survives_a_restart(fresh_valkey):
    store = await RedisStore.open(fresh_valkey.url)
    waiting = asyncio.ensure_future(store.wait_outbox("", 20))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(fresh_valkey.kill)
    await asyncio.to_thread(fresh_valkey.start)
    await submit(store, "j1")
    try:
        assert await asyncio.wait_for(waiting, 5)
    except Unavailable:
        assert await store.wait_outbox("", 1)
    await store.close()


async def test_open_waits_for_a_server_that_is_coming(fresh_valkey):
    fresh_valkey.kill()
    opening = asyncio.ensure_future(RedisStore.open(fresh_valkey.url, wait_s=20))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(fresh_valkey.start)
    store = await opening
    assert (await store.health()).reachable
    await store.close()


async def test_open_gives_up(fresh_valkey):
    fresh_valkey.kill()
    with pytest.raises(Unavailable, match="cannot be reached"):
        await RedisStore.open(fresh_valkey.url, wait_s=0.0)


async def contents(store: RedisStore) -> tuple[object, ...]:
    return (
        await store.job("j1"),
        await store.spec("j1"),
        await store.pending("j1"),
        await store.timeline("j1"),
        await store.series("j1"),
        await store.cluster(),
        await store.counts(),
        await store.read_outbox("", 100),
    )
