"""Devices: one owner at a time, given up only by token, never held by a job that waits or ended."""

import pytest
from tests.support.state import move, placed, queue, registration, release, reserve, submit, up

from frenzy_shared.state.port import Change, Claim, Release, Status


async def test_claims_take_all_devices_at_once(store):
    await placed(store)
    record = await store.job("j1")
    assert (record.state, record.attempt, record.owned_devices) == ("RESERVED", 1, 2)
    assert (await store.cluster()).owners == {"n1/gpu-0": "j1#1", "n1/gpu-1": "j1#1"}
    placed_event = (await store.read_outbox("", 100))[-1]
    assert placed_event.record["owned_devices"] == 2


async def test_a_device_has_one_owner(store):
    epoch = await placed(store)
    await queue(store, "j2")
    claim = Claim(node="n1", device="gpu-1", epoch=epoch)
    result = await store.apply("op", reserve("j2", 1, claim))
    assert (result.status, result.version) == (Status.TAKEN, 2)
    assert result.detail == "n1/gpu-1 is held by j1#1"


async def test_a_device_is_claimed_once_per_call(store):
    epoch = await up(store, "n1", 1)
    await queue(store, "j1")
    claim = Claim(node="n1", device="gpu-0", epoch=epoch)
    result = await store.apply("op", reserve("j1", 1, claim, claim))
    assert (result.status, result.detail) == (Status.TAKEN, "n1/gpu-0 is held by j1#1")
    assert (await store.cluster()).owners == {"n1/gpu-0": ""}


async def test_unknown_devices_are_not_free(store):
    epoch = await up(store, "n1", 1)
    await queue(store, "j1")
    claim = Claim(node="n1", device="gpu-7", epoch=epoch)
    result = await store.apply("op", reserve("j1", 1, claim))
    assert (result.status, result.detail) == (Status.TAKEN, "n1/gpu-7 is unknown")


async def test_only_up_nodes_of_the_present_epoch_give_devices(store):
    await queue(store, "j1")
    stale = Claim(node="n1", device="gpu-0", epoch=1)

    async def detail() -> str:
        result = await store.apply("op", reserve("j1", 1, stale))
        assert result.status is Status.NODE_EPOCH
        return result.detail

    assert await detail() == "node n1 is unknown"
    await store.register_node("r1", registration("n1"))
    assert await detail() == "node n1 is JOINING"
    for state in ("SUSPECT", "LOST", "DRAINING"):
        await store.apply(f"to-{state}", Change(entity="node:n1", patch={"state": state}))
        assert await detail() == f"node n1 is {state}"
    await store.register_node("r2", registration("n1"))
    await store.apply("up", Change(entity="node:n1", patch={"state": "UP"}))
    assert await detail() == "node n1 has epoch 2"


async def test_releases_are_counted_node_by_node(store):
    await placed(store)
    await move(store, "j1", "STOPPING", reason="Completed")
    first = Change(entity="job:j1", releases=[release("j1", 1, "n1", "gpu-0")])
    result = await store.apply("clean-0", first)
    assert (result.status, result.version) == (Status.OK, 4)  # no patch: the version stays
    assert (await store.job("j1")).owned_devices == 1
    assert (await store.cluster()).owners == {"n1/gpu-0": "", "n1/gpu-1": "j1#1"}

    early = await move(store, "j1", "SUCCEEDED")
    assert early.status is Status.BAD_STATE
    assert early.detail == "SUCCEEDED while 1 devices are owned"

    last = Change(
        entity="job:j1",
        patch={"state": "SUCCEEDED"},
        releases=[release("j1", 1, "n1", "gpu-1")],
    )
    assert (await store.apply("clean-1", last)).ok
    assert (await store.job("j1")).owned_devices == 0
    assert (await store.cluster()).owners == {"n1/gpu-0": "", "n1/gpu-1": ""}


@pytest.mark.parametrize("state", ["QUEUED", "SUBMITTED", "SUCCEEDED", "FAILED", "CANCELLED"])
async def test_owning_jobs_neither_wait_nor_end(store, state):
    await placed(store)
    result = await move(store, "j1", state)
    assert result.status is Status.BAD_STATE
    assert result.detail == f"{state} while 2 devices are owned"


async def test_waiting_jobs_claim_nothing(store):
    epoch = await up(store, "n1", 1)
    await queue(store, "j1")
    change = Change(
        entity="job:j1",
        patch={"attempt": 1},
        claims=[Claim(node="n1", device="gpu-0", epoch=epoch)],
    )
    result = await store.apply("op", change)
    assert (result.status, result.detail) == (Status.BAD_STATE, "QUEUED while 1 devices are owned")


async def test_a_late_release_frees_nothing_of_the_next_owner(store):
    epoch = await placed(store, devices=1)
    await move(store, "j1", "STOPPING")
    given = release("j1", 1, "n1", "gpu-0")
    await store.apply("end", Change(entity="job:j1", patch={"state": "QUEUED"}, releases=[given]))
    claim = Claim(node="n1", device="gpu-0", epoch=epoch)
    assert (await store.apply("again", reserve("j1", 2, claim))).ok

    late = await store.apply("late", Change(entity="job:j1", releases=[given, given]))

    assert late.ok
    assert (await store.cluster()).owners == {"n1/gpu-0": "j1#2"}
    assert (await store.job("j1")).owned_devices == 1


async def test_a_device_is_given_up_once_per_call(store):
    await placed(store, devices=2)
    given = release("j1", 1, "n1", "gpu-0")
    await store.apply("twice", Change(entity="job:j1", releases=[given, given]))
    assert (await store.job("j1")).owned_devices == 1


async def test_quarantine_requeues_at_once_and_keeps_the_device(store):
    epoch = await placed(store, devices=1)
    await move(store, "j1", "STOPPING", reason="NodeLost")
    change = Change(
        entity="job:j1",
        patch={"state": "QUEUED"},
        releases=[release("j1", 1, "n1", "gpu-0", to="!quarantine:lost j1#1")],
    )
    assert (await store.apply("requeue", change)).ok
    assert (await store.cluster()).owners == {"n1/gpu-0": "!quarantine:lost j1#1"}
    claim = Claim(node="n1", device="gpu-0", epoch=epoch)
    result = await store.apply("op", reserve("j1", 2, claim))
    assert (result.status, result.detail) == (
        Status.TAKEN,
        "n1/gpu-0 is held by !quarantine:lost j1#1",
    )


async def test_quarantines_begin_and_end_with_the_node(store):
    epoch = await up(store, "n1", 1)
    bad = Release(node="n1", device="gpu-0", token="", to="!quarantine:foreign pid 7")
    await store.apply("begin", Change(entity="node:n1", releases=[bad]))
    assert (await store.cluster()).owners == {"n1/gpu-0": "!quarantine:foreign pid 7"}
    good = Release(node="n1", device="gpu-0", token="!quarantine:foreign pid 7")
    await store.apply("end", Change(entity="node:n1", expect_epoch=epoch, releases=[good]))
    assert (await store.cluster()).owners == {"n1/gpu-0": ""}
    assert (await store.node("n1")).version == 2


async def test_releases_of_unknown_devices_are_left_alone(store):
    await submit(store, "j1")
    given = [release("j1", 1, "nowhere", "gpu-0"), Release(node="nowhere", device="x", token="")]
    assert (await store.apply("op", Change(entity="job:j1", releases=given))).ok
    assert (await store.cluster()).owners == {}


async def test_a_successor_claims_devices_beside_the_attempt_that_runs(store):
    await placed(store, devices=1)
    other = await up(store, "n2", 1)
    await move(store, "j1", "RUNNING")
    beside = Change(
        entity="job:j1",
        patch={"message": "moving"},
        claims=[Claim(node="n2", device="gpu-0", epoch=other)],
        claim_attempt=2,
    )
    assert (await store.apply("beside", beside)).ok
    assert (await store.cluster()).owners == {"n1/gpu-0": "j1#1", "n2/gpu-0": "j1#2"}
    record = await store.job("j1")
    assert (record.attempt, record.owned_devices) == (1, 2)

    await move(store, "j1", "STOPPING")
    gone = Change(entity="job:j1", releases=[release("j1", 1, "n1", "gpu-0")])
    await store.apply("gone", gone)
    early = await move(store, "j1", "QUEUED")
    assert early.detail == "QUEUED while 1 devices are owned"
    assert (await move(store, "j1", "STARTING", attempt=2)).ok


async def test_a_successors_devices_are_free_or_it_gets_none(store):
    epoch = await placed(store, devices=2)
    await move(store, "j1", "RUNNING")
    claims = [Claim(node="n1", device="gpu-1", epoch=epoch)]
    change = Change(entity="job:j1", patch={"message": "m"}, claims=claims, claim_attempt=2)
    result = await store.apply("beside", change)
    assert (result.status, result.detail) == (Status.TAKEN, "n1/gpu-1 is held by j1#1")
