"""Forgetting finished jobs, and a store whose history went backwards."""

import pytest
from tests.support.state import (
    event,
    move,
    placed,
    queue,
    registration,
    submission,
    submit,
    up,
)

from frenzy_shared.errors import SafeMode
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.keeper import JobRestore, Leave, NodeRestore, Restore
from frenzy_shared.state.port import Change, Status, Timer

LEASE = ("control", "me")


async def finish(store, job, state="FAILED"):
    await submit(store, job)
    assert (await move(store, job, state)).ok
    return await store.job(job)


async def forget(store, record, **options):
    return await store.forget(record.id, version=record.version, **options)


async def safe(store, why="it went backwards"):
    await store.acquire_lease(*LEASE, 100)
    await store.enter_safe_mode(why)


# -- forgetting ---------------------------------------------------------------------------------


async def test_the_oldest_finished_jobs_come_first(world):
    for job in ("c", "a", "b"):
        await finish(world.store, job)
        world.advance(1)
    await queue(world.store, "waiting")
    assert [job.id for job in await world.store.oldest_finished(2)] == ["c", "a"]
    assert await world.store.oldest_finished(0) == ()


async def test_a_forgotten_job_leaves_nothing(store):
    record = await finish(store, "j1")
    await store.append_series("j1", [{"step": 1}])
    set_timer = Change(entity="job:j1", set_timers=[Timer(id="stop:j1:1", after_s=0.001)])
    await store.apply("timer", set_timer)
    assert (await forget(store, record, timers=["stop:j1:1"])).status is Status.OK
    assert await store.job("j1") is await store.spec("j1") is await store.plans("j1") is None
    assert await store.timeline("j1") == await store.series("j1") == ()
    assert await store.oldest_finished(9) == ()
    page = await store.list_jobs(
        project="default", states=frozenset(), page_size=9, page_token="", labels={}
    )
    assert page.jobs == ()
    assert set((await store.counts()).values()) == {0}
    again = await store.submit("again", submission("j2", key="key-j1", body="other"))
    assert again.status is Status.OK


async def test_only_what_has_finished_and_has_not_changed_is_forgotten(store):
    assert (await store.forget("none", version=1)).status is Status.NOT_FOUND
    await queue(store, "j1")
    record = await store.job("j1")
    assert (await forget(store, record)).status is Status.BAD_STATE
    assert (await store.forget("j1", version=1)).status is Status.STALE


async def test_other_jobs_stay(store):
    record = await finish(store, "j1")
    await submit(store, "j2", key="mine")
    await forget(store, record)
    assert (await store.job("j2")).id == "j2"
    assert (await store.submit("x", submission("j3", key="mine"))).status is Status.EXISTS


# -- the history --------------------------------------------------------------------------------


async def test_the_history_has_a_name_and_counts_messages(store):
    before = await store.history()
    assert (before.posted, before.safe_mode) == (0, "")
    await submit(store, "j1")
    after = await store.history()
    assert (after.gen, after.posted) == (before.gen, 1)
    (entry,) = await store.read_outbox("", 9)
    assert entry.history == after.mark


async def test_in_safe_mode_nothing_changes_but_nodes_register(store):
    await queue(store, "j1")
    earlier = await store.submit("before", submission("j2"))
    await safe(store)
    with pytest.raises(SafeMode, match="it went backwards"):
        await store.submit("after", submission("j3"))
    with pytest.raises(SafeMode, match="SAFE MODE"):
        await move(store, "j1", "CANCELLED")
    assert await store.submit("before", submission("j2")) == earlier  # the answer was lost
    assert (await store.register_node("r", registration("n1"))).ok
    assert (await store.health()).safe_mode == (await store.history()).safe_mode


async def test_what_was_is_written_back_whole(store):
    await store.history()
    await placed(store)  # j1 on both devices of n1
    lost = await store.job("j1")
    node = await store.node("n1")
    timeline = await store.timeline("j1")
    await move(store, "j1", "STOPPING")
    await queue(store, "j2")
    await safe(store)
    record = {**to_json(lost), "version": 7, "sequence": 40}
    jobs = [
        JobRestore(
            record=record,
            spec={"a": 1},
            plans={"plans": [], "refused": [], "kinds_digest": "k"},
            timeline=timeline,
            outbox=[event("updated", "j1")],
        )
    ]
    nodes = [NodeRestore(record={**to_json(node), "epoch": 9})]
    restore = Restore(lease=LEASE, gen="abc", posted=1000, jobs=jobs, nodes=nodes)
    assert (await store.restore("op", restore)).ok
    assert (await store.restore("op", restore)).ok  # the answer was lost
    job = await store.job("j1")
    assert (job.state, job.version, job.owned_devices) == ("RESERVED", 7, 2)
    assert await store.timeline("j1") == timeline
    assert await store.spec("j1") == {"a": 1}
    assert (await store.plans("j1")).kinds_digest == "k"
    assert (await store.node("n1")).epoch == 9
    assert [j.id for j in await store.jobs_in(frozenset({"RESERVED", "QUEUED"}))] == ["j2", "j1"]
    entries = await store.read_outbox("", 99)
    assert (entries[-1].message_id, entries[-1].record["version"]) == ("j1:7:0", 7)
    history = await store.history()
    assert history.posted == 1001
    assert entries[-1].history == history.mark
    owners = {"n1/gpu-0": "j1#1", "n1/gpu-1": ""}
    timers = [Timer(id="prepare:j1:1", after_s=0.001)]
    leave = Leave(lease=LEASE, owners=owners, timers=timers)
    assert (await store.leave_safe_mode("leave", leave)).ok
    assert (await store.cluster()).owners == owners
    assert (await store.history()).gen == "abc"
    await submit(store, "j3")
    assert (await store.job("j3")).sequence == 41


async def test_a_finished_job_that_is_restored_can_be_forgotten(store):
    record = await finish(store, "j1", "SUCCEEDED")
    await safe(store)
    jobs = [JobRestore(record=to_json(record))]
    await store.restore("op", Restore(lease=LEASE, gen="abc", posted=0, jobs=jobs))
    assert [job.id for job in await store.oldest_finished(9)] == ["j1"]
    assert (await store.counts())["SUCCEEDED"] == 1


async def test_recovery_needs_safe_mode_and_the_lease(store):
    await up(store, "n1")
    restore = Restore(lease=LEASE, gen="abc", posted=0)
    leave = Leave(lease=LEASE, owners={})
    assert (await store.restore("a", restore)).status is Status.BAD_STATE
    assert (await store.leave_safe_mode("b", leave)).status is Status.BAD_STATE
    await store.enter_safe_mode("why")
    assert (await store.restore("c", restore)).status is Status.LEASE
    assert (await store.leave_safe_mode("d", leave)).status is Status.LEASE
    assert (await store.cluster()).owners != {}


async def test_a_lease_that_ended_is_not_renewed(world):
    assert not await world.store.acquire_lease("control", "a", 10, renew=True)
    assert await world.store.acquire_lease("control", "a", 10)
    assert await world.store.acquire_lease("control", "a", 10, renew=True)
    world.advance(11)
    assert not await world.store.acquire_lease("control", "a", 10, renew=True)
    assert await world.store.acquire_lease("control", "a", 10)
