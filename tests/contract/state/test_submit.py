"""Accepting jobs: once per key, within the quota, whole or not at all."""

from dataclasses import replace

import pytest
from tests.support.state import move, queue, submission, submit

from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.project import Project
from frenzy_shared.state.port import Change, Status

DAY_S = 86_400


async def test_stores_record_spec_timeline_and_event(store):
    spec = {
        "learning_rate": 0.30000000000000004,
        "args": [],
        "env": {},
        "big": 2**53 - 1,
        "é": None,
    }
    wanted = submission("j1", labels=(("team", "nlp"),), spec=spec, priority=70, traceparent="00-a")

    result = await store.submit("op", wanted)

    assert (result.status, result.version, result.id) == (Status.OK, 1, "j1")
    record = await store.job("j1")
    assert record.sequence == 1
    assert record.created_ms == record.updated_ms > 0
    assert replace(record, sequence=0, created_ms=0, updated_ms=0) == wanted.job
    assert await store.spec("j1") == spec
    (entry,) = await store.timeline("j1")
    assert entry == {
        "time_ms": record.created_ms,
        "version": 1,
        "state": "SUBMITTED",
        "reason": "",
        "message": "",
        "attempt": 0,
    }
    (message,) = await store.read_outbox("", 10)
    assert message.message_id == "j1:1:0"
    assert message.subject == "frenzy.v1.evt.default.job.submitted.j1"
    assert (message.type, message.entity, message.version) == ("submitted", "job:j1", 1)
    assert message.record["state"] == "SUBMITTED"
    assert message.record["labels"] == [["team", "nlp"]]
    assert message.traceparent == "00-a"


async def test_counts_arrivals(store):
    for job in ("b", "a", "c"):
        await submit(store, job)
    assert [(await store.job(job)).sequence for job in ("b", "a", "c")] == [1, 2, 3]


async def test_same_key_same_body_is_the_same_job(store):
    await submit(store, "j1", key="k")
    again = await store.submit("other-op", submission("j2", key="k"))
    assert (again.status, again.id, again.version, again.ok) == (Status.EXISTS, "j1", 1, True)
    assert await store.job("j2") is None
    assert len(await store.read_outbox("", 10)) == 1


async def test_same_key_other_body_conflicts(store):
    await submit(store, "j1", key="k")
    again = await store.submit("op", submission("j2", key="k", body="other"))
    assert (again.status, again.id, again.ok) == (Status.CONFLICT, "j1", False)
    assert "another body" in again.detail
    assert await store.job("j2") is None


async def test_a_key_belongs_to_its_project(store):
    await submit(store, "j1", key="k")
    assert (await store.submit("op", submission("j2", key="k", project="p2"))).status is Status.OK


async def test_a_key_outlives_the_operation_but_not_for_ever(world):
    await submit(world.store, "j1", key="k")
    world.advance(29 * DAY_S)
    again = await world.store.submit("op-2", submission("j2", key="k"))
    assert again.status is Status.EXISTS
    world.advance(2 * DAY_S)
    fresh = await world.store.submit("op-3", submission("j3", key="k"))
    assert fresh.status is Status.OK


async def test_a_job_id_is_used_once(store):
    await submit(store, "j1", key="k1")
    again = await store.submit("op", submission("j1", key="k2"))
    assert (again.status, again.detail) == (Status.CONFLICT, "the job id is in use")


async def test_a_repeated_operation_answers_as_it_did(store):
    first = await store.submit("op", submission("j1"))
    await move(store, "j1", "QUEUED")
    assert await store.submit("op", submission("j1")) == first
    assert (await store.job("j1")).version == 2
    assert len(await store.read_outbox("", 10)) == 2


async def test_exists_reports_the_present_version(store):
    await submit(store, "j1", key="k")
    await move(store, "j1", "QUEUED")
    assert (await store.submit("op", submission("j2", key="k"))).version == 2


async def test_an_operation_is_remembered_for_a_day(world):
    await submit(world.store, "j1")
    change = Change(entity="job:j1", patch={"message": "once"})
    await world.store.apply("op", change)
    world.advance(DAY_S - 60)
    assert (await world.store.apply("op", change)).version == 2
    world.advance(120)
    assert (await world.store.apply("op", change)).version == 3


async def test_quota_counts_unfinished_jobs(store):
    await store.put_project(Project(name="default", max_unfinished_jobs=2))
    await queue(store, "j1")
    await submit(store, "j2")
    full = await store.submit("op-3", submission("j3"))
    assert (full.status, full.detail) == (Status.QUOTA, "2 of 2 unfinished jobs")
    assert await store.job("j3") is None
    assert (await store.submit("elsewhere", submission("j4", project="p2"))).ok

    await move(store, "j1", "CANCELLED")
    assert (await store.submit("op-3", submission("j3"))).status is Status.OK


async def test_quota_does_not_refuse_what_was_accepted(store):
    await submit(store, "j1", key="k")
    await store.put_project(Project(name="default", max_unfinished_jobs=1))
    assert (await store.submit("op", submission("j2", key="k"))).status is Status.EXISTS


async def test_quota_zero_takes_nothing(store):
    await store.put_project(Project(name="default", max_unfinished_jobs=0))
    assert (await store.submit("op", submission("j1"))).status is Status.QUOTA


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": JobState.QUEUED},
        {"version": 2},
        {"owned_devices": 1},
    ],
)
async def test_refuses_a_job_that_is_not_fresh(store, wrong):
    fresh = submission("j1")
    with pytest.raises(ValueError, match="SUBMITTED, version 1"):
        await store.submit("op", replace(fresh, job=replace(fresh.job, **wrong)))
    with pytest.raises(ValueError, match="idempotency key"):
        await store.submit("op", replace(fresh, idempotency_key=""))
