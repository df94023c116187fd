"""Transitions: expectations first, then everything or nothing, once per operation id."""

import math

import pytest
from tests.support.state import event, move, queue, registration, submit, up

from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.port import Change, Claim, OutboxMessage, Release, Status, Timer


async def test_changes_record_timeline_and_event_together(store):
    await submit(store, "j1")
    change = Change(
        entity="job:j1",
        expect_version=1,
        allowed_from=frozenset({"SUBMITTED"}),
        patch={"state": "QUEUED", "reason": "WaitingForCapacity", "message": 'needs "2" é'},
        outbox=[event("planned", "j1", plans=3), event("replanned", "j1")],
    )

    result = await store.apply("op", change)

    assert (result.status, result.version) == (Status.OK, 2)
    record = await store.job("j1")
    assert (record.state, record.version, record.message) == ("QUEUED", 2, 'needs "2" é')
    submitted, queued = await store.timeline("j1")
    assert queued == {
        "time_ms": record.updated_ms,
        "version": 2,
        "state": "QUEUED",
        "reason": "WaitingForCapacity",
        "message": 'needs "2" é',
        "attempt": 0,
    }
    _, planned, replanned = await store.read_outbox("", 10)
    assert [planned.message_id, replanned.message_id] == ["j1:2:0", "j1:2:1"]
    assert planned.data == {"plans": 3}
    assert planned.record["version"] == replanned.record["version"] == 2
    assert planned.time_ms == record.updated_ms


async def test_a_patch_inside_a_state_adds_no_timeline_entry(store):
    await submit(store, "j1")
    result = await store.apply("op", Change(entity="job:j1", patch={"last_step": 7}))
    assert result.version == 2
    assert (await store.job("j1")).last_step == 7
    assert len(await store.timeline("j1")) == 1


async def test_not_found(store):
    for entity in ("job:none", "node:none"):
        result = await store.apply("op", Change(entity=entity, patch={"reason": "x"}))
        assert (result.status, result.version, result.detail) == (Status.NOT_FOUND, 0, entity)


async def test_stale(store):
    await queue(store, "j1")
    change = Change(entity="job:j1", expect_version=1, patch={"message": "x"})
    result = await store.apply("op", change)
    assert (result.status, result.version, result.detail) == (Status.STALE, 2, "version is 2")


async def test_fenced(store):
    await queue(store, "j1")
    change = Change(entity="job:j1", expect_attempt=1, patch={"message": "x"})
    result = await store.apply("op", change)
    assert (result.status, result.version, result.detail) == (Status.FENCED, 2, "attempt is 0")


async def test_node_epoch(store):
    await up(store, "n1")
    change = Change(entity="node:n1", expect_epoch=2, patch={"state": "SUSPECT"})
    result = await store.apply("op", change)
    assert (result.status, result.version, result.detail) == (Status.NODE_EPOCH, 2, "epoch is 1")


async def test_bad_state(store):
    await queue(store, "j1")
    change = Change(entity="job:j1", allowed_from=frozenset({"RUNNING"}), patch={"message": "x"})
    result = await store.apply("op", change)
    assert (result.status, result.detail) == (Status.BAD_STATE, "state is QUEUED")


async def test_the_first_broken_expectation_decides(store):
    await queue(store, "j1")
    await store.acquire_lease("control", "other", 30)
    everything_wrong = {
        "expect_version": 9,
        "expect_attempt": 9,
        "allowed_from": frozenset({"RUNNING"}),
        "lease": ("control", "me"),
    }
    for wrong, status in [
        ("lease", Status.LEASE),
        ("expect_version", Status.STALE),
        ("expect_attempt", Status.FENCED),
        ("allowed_from", Status.BAD_STATE),
    ]:
        change = Change(entity="job:j1", patch={"message": "x"}, **everything_wrong)
        assert (await store.apply("op", change)).status is status
        del everything_wrong[wrong]
    assert (await store.job("j1")).version == 2


async def test_a_lease_must_be_held(store):
    await submit(store, "j1")
    change = Change(entity="job:j1", lease=("control", "me"), patch={"message": "x"})
    result = await store.apply("op", change)
    assert (result.status, result.detail) == (Status.LEASE, "control is held by nobody")
    await store.acquire_lease("control", "other", 30)
    assert (await store.apply("op", change)).detail == "control is held by other"
    await store.release_lease("control", "other")
    await store.acquire_lease("control", "me", 30)
    assert (await store.apply("op", change)).ok


async def test_a_refusal_is_not_remembered(store):
    await submit(store, "j1")
    change = Change(entity="job:j1", allowed_from=frozenset({"QUEUED"}), patch={"message": "x"})
    assert (await store.apply("op", change)).status is Status.BAD_STATE
    await move(store, "j1", "QUEUED")
    assert (await store.apply("op", change)).status is Status.OK


async def test_a_repeated_operation_takes_effect_once(store):
    await submit(store, "j1")
    change = Change(
        entity="job:j1",
        patch={"state": "QUEUED"},
        set_timers=[Timer(id="t", after_s=0)],
        outbox=[event("planned", "j1")],
    )
    first = await store.apply("op", change)
    assert await store.due() != ()
    assert await store.apply("op", change) == first
    assert await store.due() == ()
    assert (await store.job("j1")).version == 2
    assert len(await store.timeline("j1")) == 2
    assert len(await store.read_outbox("", 10)) == 2


async def test_versions_have_no_gaps(store):
    await submit(store, "j1")
    for step in range(20):
        await store.apply(f"op{step}", Change(entity="job:j1", patch={"last_step": step}))
        refused = Change(entity="job:j1", expect_version=1, patch={"last_step": 0})
        await store.apply(f"no{step}", refused)
    assert (await store.job("j1")).version == 21


async def test_documents_alone_leave_the_version(store):
    await queue(store, "j1")
    plans = PlanSet(plans=(), refused=(), kinds_digest="d", message="none fits")
    pending = {"reason": "WaitingForCapacity", "message": "2 of 4", "nearest": "", "position": 1}
    change = Change(entity="job:j1", documents={"plans": to_json(plans), "pending": pending})
    result = await store.apply("op", change)
    assert result.version == 2
    assert await store.plans("j1") == plans
    assert await store.pending("j1") == pending

    await store.apply("op2", Change(entity="job:j1", documents={"pending": None}))
    assert await store.pending("j1") is None
    assert await store.plans("j1") == plans


async def test_a_refused_change_changes_nothing(store):
    epoch = await up(store, "n1", 1)
    await queue(store, "j1")
    before = await store.job("j1"), await store.timeline("j1"), await store.cluster()
    events = len(await store.read_outbox("", 100))
    change = Change(
        entity="job:j1",
        patch={"state": "RESERVED", "attempt": 1},
        documents={"pending": {"reason": "x"}},
        claims=[
            Claim(node="n1", device="gpu-0", epoch=epoch),
            Claim(node="n1", device="gpu-9", epoch=epoch),
        ],
        set_timers=[Timer(id="t", after_s=0)],
        outbox=[event("placed", "j1")],
    )
    assert (await store.apply("op", change)).status is Status.TAKEN
    assert (await store.job("j1"), await store.timeline("j1"), await store.cluster()) == before
    assert await store.pending("j1") is None
    assert await store.due() == ()
    assert len(await store.read_outbox("", 100)) == events


async def test_numbers_keep_their_value(store):
    await submit(store, "j1")
    exact = 0.1 + 0.2
    await store.apply("op", Change(entity="job:j1", patch={"last_loss": exact, "last_step": 2**52}))
    await store.apply("op2", Change(entity="job:j1", patch={"message": "touch"}))
    record = await store.job("j1")
    assert (record.last_loss, record.last_step) == (exact, 2**52)


async def test_not_a_number_becomes_none(store):
    await submit(store, "j1")
    await store.apply("op", Change(entity="job:j1", patch={"last_loss": math.nan}))
    assert (await store.job("j1")).last_loss is None


async def test_the_timeline_is_bounded(store):
    await submit(store, "j1")
    for index in range(1005):
        state = ("QUEUED", "SUBMITTED")[index % 2]
        await store.apply(f"op{index}", Change(entity="job:j1", patch={"state": state}))
    timeline = await store.timeline("j1")
    assert len(timeline) == 1000
    assert timeline[-1]["version"] == 1006


async def test_reads_of_what_does_not_exist(store):
    assert await store.job("x") is None
    assert await store.spec("x") is None
    assert await store.plans("x") is None
    assert await store.pending("x") is None
    assert await store.node("x") is None
    assert await store.token("x") is None
    assert await store.timeline("x") == ()
    assert await store.series("x") == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change(entity="cat:x"), "neither"),
        (Change(entity="job:"), "neither"),
        (Change(entity="job:x", patch={"version": 3}), "cannot set version"),
        (Change(entity="job:x", patch={"owned_devices": 0}), "cannot set owned_devices"),
        (Change(entity="job:x", patch={"stat": "QUEUED"}), "cannot set stat"),
        (Change(entity="job:x", patch={"state": "UP"}), "not a job state"),
        (Change(entity="node:x", patch={"state": "QUEUED"}), "not a node state"),
        (Change(entity="node:x", patch={"epoch": 2}), "cannot set epoch"),
        (Change(entity="job:x", documents={"spec": {}}), "unknown documents"),
        (Change(entity="node:x", documents={"plans": {}}), "only jobs"),
        (Change(entity="job:x", expect_epoch=1), "no epoch"),
        (Change(entity="node:x", expect_attempt=1), "no attempt"),
        (Change(entity="job:x", claims=[Claim(node="n", device="d", epoch=1)]), "attempt"),
        (Change(entity="node:x", claims=[Claim(node="n", device="d", epoch=1)]), "only jobs"),
        (Change(entity="job:x", releases=[Release(node="n", device="d", token="y#1")]), "y#1"),
        (Change(entity="node:x", releases=[Release(node="n", device="d", token="y#1")]), "y#1"),
        (
            Change(entity="job:x", releases=[Release(node="n", device="d", token="x#1", to="y#1")]),
            "released to",
        ),
        (Change(entity="job:x", outbox=[OutboxMessage(subject="s", type="t")]), "need a patch"),
    ],
)
async def test_refuses_what_cannot_mean_anything(store, change, why):
    with pytest.raises(ValueError, match=why):
        await store.apply("op", change)


async def test_nodes_publish_too(store):
    await store.register_node("op", registration("n1"))
    (joined,) = await store.read_outbox("", 10)
    assert (joined.entity, joined.message_id, joined.type) == ("node:n1", "n1:1:0", "joined")
    assert joined.record["epoch"] == 1
    assert len(joined.record["devices"]) == 2
