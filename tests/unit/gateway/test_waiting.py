"""Jobs that wait for other jobs, and jobs that somebody holds back."""

import pytest
from tests.unit.gateway.conftest import SPEC

from frenzy_gateway.submission import job_id_of
from frenzy_shared.domain.ids import JobId, ProjectName
from frenzy_shared.domain.job import JobState

JOBS = "/api/v1/jobs"


async def submit(client, key=None, project="default", **spec):
    headers = {"Idempotency-Key": key} if key else {}
    return await client.post(
        JOBS, json={**SPEC, **spec}, params={"project": project}, headers=headers
    )


async def test_names_and_ids_become_ids_once_each(gateway, admin):
    old = (await submit(admin, name="prepare")).json()["id"]
    new = (await submit(admin, name="prepare")).json()["id"]
    job = (await submit(admin, depends_on=["prepare", old, new])).json()["id"]
    record = await gateway.store.job(JobId(job))
    assert (record.depends_on, record.after) == ((new, old), ())
    assert (await gateway.store.spec(JobId(job)))["depends_on"] == ["prepare", old, new]


async def test_any_end_is_enough_when_asked_for(gateway, admin):
    first = (await submit(admin, name="prepare")).json()["id"]
    await gateway.move(first, JobState.FAILED)
    job = (await submit(admin, depends_on=["prepare"], depends_on_end="any")).json()["id"]
    record = await gateway.store.job(JobId(job))
    assert (record.depends_on, record.after) == ((), (first,))
    assert (await admin.get(f"{JOBS}/{job}")).json()["after"] == [first]


async def test_an_unknown_dependency_is_named_with_what_is_near(admin, problem):
    await submit(admin, name="prepare-data")
    said = problem(await submit(admin, depends_on=["prepare-date"]), 422, "invalid_spec")
    assert said["errors"] == [
        {
            "pointer": "/depends_on/0",
            "detail": "project default has no job 'prepare-date', by id or name; "
            "did you mean 'prepare-data'?",
        }
    ]


async def test_other_projects_jobs_cannot_be_named(admin, problem):
    other = (await submit(admin, project="other", name="prepare")).json()["id"]
    for text in (other, "prepare"):
        problem(await submit(admin, depends_on=[text]), 422, "invalid_spec")


async def test_a_job_cannot_wait_for_itself(admin, problem):
    """Whoever chooses the key knows the id beforehand: the only cycle that could be made."""
    own = job_id_of(ProjectName("default"), "my-key")
    said = problem(await submit(admin, key="my-key", depends_on=[own]), 422, "invalid_spec")
    assert said["detail"] == "depends_on.0: a job cannot depend on itself"


async def test_a_dependency_that_failed_is_said_at_once(gateway, admin, problem):
    first = (await submit(admin, name="prepare")).json()["id"]
    await gateway.move(first, JobState.CANCELLED)
    said = problem(await submit(admin, depends_on=["prepare"]), 422, "invalid_spec")
    assert f"prepare ({first}) is CANCELLED: this could never start" in said["detail"]
    assert said["suggestions"] == ["depends_on_end: any waits for any end"]


async def test_a_retried_submit_is_not_refused_for_what_failed_meanwhile(gateway, admin):
    first = (await submit(admin, name="prepare")).json()["id"]
    made = await submit(admin, key="k", depends_on=["prepare"])
    await gateway.move(first, JobState.FAILED)
    again = await submit(admin, key="k", depends_on=["prepare"])
    assert (made.status_code, again.status_code) == (201, 200)
    assert made.json()["id"] == again.json()["id"]


@pytest.mark.parametrize("state", [JobState.SUBMITTED, JobState.QUEUED])
async def test_a_waiting_job_is_held_and_released_once(gateway, admin, job, state):
    if state is not JobState.SUBMITTED:
        await gateway.move(job, state)
    for _ in range(2):
        assert (await admin.post(f"{JOBS}/{job}:hold")).status_code == 200
    assert (await gateway.store.job(JobId(job))).held_by == "admin-token"
    for _ in range(2):
        assert (await admin.post(f"{JOBS}/{job}:release")).status_code == 200
    assert (await gateway.store.job(JobId(job))).held_by == ""
    types = [entry.type for entry in await gateway.store.read_outbox("", 100)]
    assert (types.count("held"), types.count("released")) == (1, 1)


@pytest.mark.parametrize("verb", ["hold", "release"])
async def test_a_job_that_no_longer_waits_is_neither_held_nor_released(
    gateway, admin, job, problem, verb
):
    await gateway.move(job, JobState.RUNNING)
    said = problem(await admin.post(f"{JOBS}/{job}:{verb}"), 409, "invalid_state")
    assert "only a waiting job" in said["detail"]
