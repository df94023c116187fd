"""Forgetting nodes that are gone for ever."""

from dataclasses import replace

import pytest
from tests.support.state import placed, registration, up

from frenzy_shared.errors import SafeMode
from frenzy_shared.state.port import Change, NodeForgetting, OutboxMessage, Release, Status, Timer


async def lost(store, name="n1"):
    await store.apply(f"lost:{name}", Change(entity=f"node:{name}", patch={"state": "LOST"}))
    return await store.node(name)


def forgetting(node, **fields):
    gone = OutboxMessage(
        subject="frenzy.v1.evt.cluster.node.forgotten.n1", type="forgotten", data={}
    )
    wanted = NodeForgetting(node=node.id, expect_version=node.version, outbox=(gone,))
    return replace(wanted, **fields)


async def test_a_forgotten_node_leaves_nothing_but_its_announcement(world):
    store = world.store
    await up(store, "n1", 2)
    await up(store, "n2", 1)
    set_timer = Change(entity="node:n1", set_timers=[Timer(id="fence:n1:1", after_s=0.001)])
    await store.apply("timer", set_timer)
    node = await lost(store)
    result = await store.forget_node("op", forgetting(node, timers=["fence:n1:1"]))
    assert (result.status, result.version) == (Status.OK, node.version + 1)
    assert await store.node("n1") is None
    cluster = await store.cluster()
    assert [found.id for found in cluster.nodes] == ["n2"]
    assert set(cluster.owners) == {"n2/gpu-0"}
    world.advance(1)
    assert await store.due() == ()
    entry = (await store.read_outbox("", 1000))[-1]
    assert (entry.type, entry.message_id) == ("forgotten", f"n1:{node.version + 1}:0")
    assert entry.record["state"] == "LOST"


async def test_what_still_answers_or_holds_something_is_not_forgotten(store):
    await placed(store)
    node = await store.node("n1")
    assert (await store.forget_node("up", forgetting(node))).status is Status.BAD_STATE
    node = await lost(store)
    owned = await store.forget_node("owned", forgetting(node))
    assert (owned.status, owned.detail) == (Status.BAD_STATE, "n1/gpu-0 is held by j1#1")
    stale = forgetting(node, expect_version=node.version - 1)
    assert (await store.forget_node("stale", stale)).status is Status.STALE
    unknown = NodeForgetting(node="n9", expect_version=1)
    assert (await store.forget_node("none", unknown)).status is Status.NOT_FOUND
    assert await store.node("n1") == node


async def test_asking_again_after_a_lost_answer_changes_nothing(store):
    await up(store, "n1")
    node = await lost(store)
    first = await store.forget_node("op", forgetting(node))
    assert await store.forget_node("op", forgetting(node)) == first


async def test_a_node_that_comes_back_is_newer_than_all_that_were_forgotten(store):
    for _ in range(3):
        await store.register_node(f"again:{_}", registration("n1"))
    await up(store, "n2")
    before = await lost(store)
    assert await store.gone_epoch() == 0
    await store.forget_node("op", forgetting(before))
    assert await store.gone_epoch() == before.epoch
    result = await store.register_node("back", registration("n1"))
    assert result.epoch == before.epoch + 1
    assert (await store.node("n1")).version > before.version
    assert (await store.node("n2")).epoch == 1


async def test_a_quarantined_device_must_be_proven_free_first(store):
    await placed(store)
    token = "!quarantine:lost j1#1"
    release = Release(node="n1", device="gpu-0", token="j1#1", to=token)
    await store.apply("q", Change(entity="job:j1", releases=[release]))
    result = await store.forget_node("op", forgetting(await lost(store)))
    assert token in result.detail


async def test_nothing_is_forgotten_in_safe_mode(store):
    await up(store, "n1")
    node = await lost(store)
    await store.enter_safe_mode("it went backwards")
    with pytest.raises(SafeMode):
        await store.forget_node("op", forgetting(node))
