import asyncio

import pytest
from tests.unit.gateway.conftest import SPEC

from frenzy_shared.domain.job import JobState, StopReason
from frenzy_shared.domain.project import Project
from frenzy_shared.state.port import Change, Result, Status


async def events(gateway):
    return [entry.type for entry in await gateway.store.read_outbox("", 100)]


async def cancel(client, job):
    return await client.post(f"/api/v1/jobs/{job}:cancel")


@pytest.mark.parametrize("state", [JobState.SUBMITTED, JobState.QUEUED])
async def test_a_waiting_job_is_cancelled_at_once(gateway, admin, job, state):
    if state is not JobState.SUBMITTED:
        await gateway.move(job, state)
    response = await cancel(admin, job)
    assert response.status_code == 200
    body = response.json()
    assert (body["state"], body["reason"], body["message"]) == (
        "CANCELLED",
        "ByUser",
        "cancelled by admin-token",
    )
    assert body["finished_at"] is not None
    assert (await events(gateway))[-1] == "cancelled"


@pytest.mark.parametrize("state", [JobState.RESERVED, JobState.STARTING, JobState.RUNNING])
async def test_a_placed_job_is_asked_to_stop(gateway, admin, job, state):
    await gateway.move(job, state)
    body = (await cancel(admin, job)).json()
    assert (body["state"], body["reason"], body["finished_at"]) == ("STOPPING", "ByUser", None)
    assert (await events(gateway))[-1] == "stopping"


async def test_cancelling_again_changes_nothing(gateway, admin, job):
    await gateway.move(job, JobState.RUNNING)
    first = (await cancel(admin, job)).json()
    again = await cancel(admin, job)
    assert (again.status_code, again.json()) == (200, first)
    await gateway.move(job, JobState.CANCELLED)
    assert (await cancel(admin, job)).status_code == 200


@pytest.mark.parametrize(
    "reason", [StopReason.NODE_LOST, StopReason.START_TIMEOUT, StopReason.CUDA_OUT_OF_MEMORY]
)
async def test_a_job_that_would_be_queued_again_is_not(gateway, admin, job, reason):
    await gateway.move(job, JobState.STOPPING, reason=reason)
    body = (await cancel(admin, job)).json()
    assert (body["state"], body["reason"]) == ("STOPPING", "ByUser")


async def test_a_job_that_has_just_completed_stays_completed(gateway, admin, job):
    version = await gateway.move(job, JobState.STOPPING, reason=StopReason.COMPLETED)
    body = (await cancel(admin, job)).json()
    assert (body["state"], body["reason"], body["version"]) == ("STOPPING", "Completed", version)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_a_finished_job_cannot_be_cancelled(gateway, admin, job, problem, state):
    await gateway.move(job, state)
    assert state.lower() in problem(await cancel(admin, job), 409, "invalid_state")["detail"]


async def test_an_unknown_job_is_not_found(admin, problem):
    problem(await cancel(admin, "nosuchjob"), 404, "not_found")


async def test_a_race_with_the_scheduler_is_tried_again(gateway, admin, job):
    real, lost = gateway.store.apply, []

    async def apply(op: str, change: Change) -> Result:
        if len(lost) < 2:
            lost.append(op)
            await real(
                f"scheduler:{len(lost)}",
                Change(
                    entity=change.entity,
                    patch={"state": "QUEUED" if len(lost) == 1 else "RESERVED"},
                ),
            )
        return await real(op, change)

    gateway.store.apply = apply
    body = (await cancel(admin, job)).json()
    assert (len(lost), body["state"]) == (2, "STOPPING")


async def test_a_job_that_never_holds_still_is_told_so(gateway, admin, job, problem):
    async def stale(_op: str, _change: Change) -> Result:
        return Result(status=Status.STALE)

    gateway.store.apply = stale
    problem(await cancel(admin, job), 503, "unavailable")


async def test_many_cancels_at_once_make_one_transition(gateway, admin, job):
    responses = await asyncio.gather(*(cancel(admin, job) for _ in range(10)))
    assert {(response.status_code, response.json()["version"]) for response in responses} == {
        (200, 2)
    }
    assert (await events(gateway)).count("cancelled") == 1


async def test_a_cancelled_job_frees_its_place_in_the_quota(gateway, admin):
    await gateway.store.put_project(Project(name="default", max_unfinished_jobs=1))
    job = (await admin.post("/api/v1/jobs", json=SPEC)).json()["id"]
    await cancel(admin, job)
    assert (await admin.post("/api/v1/jobs", json=SPEC)).status_code == 201
