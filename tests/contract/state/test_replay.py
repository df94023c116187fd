"""A lost reply makes the client repeat the call: one effect, the same answer."""

from collections.abc import AsyncIterator

import pytest
from tests.support.proxy import LossyProxy
from tests.support.state import event, queue, registration, reserve, submission, submit, up
from tests.support.valkey import ValkeyProcess

from frenzy_shared.state.port import Change, Claim, Timer
from frenzy_shared.state.redis import RedisStore


@pytest.fixture
async def proxy(valkey: ValkeyProcess) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(valkey.port) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: LossyProxy) -> AsyncIterator[RedisStore]:
    store = await RedisStore.open(f"redis://127.0.0.1:{proxy.port}/0")
    yield store
    await store.close()


async def test_submit(store, proxy):
    proxy.lose(b"frenzy1_submit", times=2)
    result = await store.submit("op", submission("j1"))
    assert (proxy.lost, result.ok, result.id, result.version) == (2, True, "j1", 1)
    assert (await store.job("j1")).sequence == 1
    assert len(await store.read_outbox("", 9)) == 1
    assert len(await store.timeline("j1")) == 1


async def test_apply(store, proxy):
    epoch = await up(store, "n1", 1)
    await queue(store, "j1")
    proxy.lose(b"frenzy1_apply")
    claim = Claim(node="n1", device="gpu-0", epoch=epoch)
    result = await store.apply("op", reserve("j1", 1, claim, version=2))
    assert (proxy.lost, result.ok, result.version) == (1, True, 3)
    assert (await store.job("j1")).owned_devices == 1
    assert [entry.type for entry in await store.read_outbox("", 9)].count("placed") == 1


async def test_register_node(store, proxy):
    proxy.lose(b"frenzy1_register_node")
    assert (await store.register_node("op", registration("n1"))).epoch == 1
    assert (proxy.lost, (await store.node("n1")).epoch) == (1, 1)


async def test_due_hands_the_same_timers_out(store, proxy):
    await submit(store, "j1")
    change = Change(entity="job:j1", set_timers=[Timer(id="t", after_s=0)])
    await store.apply("op", change)
    proxy.lose(b"frenzy1_due")
    assert [timer.id for timer in await store.due()] == ["t"]
    assert proxy.lost == 1


async def test_append_series(store, proxy):
    proxy.lose(b"frenzy1_append_series")
    await store.append_series("j1", [{"step": 1}])
    assert (proxy.lost, await store.series("j1")) == (1, ({"step": 1},))


async def test_lease_and_cursor(store, proxy):
    proxy.lose(b"frenzy1_acquire_lease")
    assert await store.acquire_lease("control", "me", 10)
    await submit(store, "j1")
    (entry,) = await store.read_outbox("", 9)
    proxy.lose(b"frenzy1_advance_outbox")
    await store.advance_outbox(entry.cursor)
    assert (proxy.lost, (await store.health()).outbox_lag) == (2, 0)


async def test_a_refusal_may_be_repeated(store, proxy):
    await submit(store, "j1")
    proxy.lose(b"frenzy1_apply")
    change = Change(
        entity="job:j1", expect_version=7, patch={"message": "x"}, outbox=[event("x", "j1")]
    )
    assert (await store.apply("op", change)).detail == "version is 1"
    assert proxy.lost == 1
