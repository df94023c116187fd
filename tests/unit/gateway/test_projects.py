"""Projects and quotas over HTTP: who sees and sets them, and what an answer says."""

import pytest
from tests.support.scheduling import placement
from tests.support.state import registration
from tests.unit.gateway.conftest import SPEC

from frenzy_shared.auth import Role
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_shared.messages.codec import to_json

PROJECTS = "/api/v1/projects"
JOBS = "/api/v1/jobs"
KIND = "emulated-a100-40"
QUOTA = {
    "weight": 2,
    "devices": {"limit": 64},
    "kinds": {KIND: {"nominal": 1, "limit": 4}},
    "max_unfinished_jobs": 10,
    "max_running_jobs": 3,
}


@pytest.fixture
async def running(gateway, admin):
    """A job of project vision that runs on both devices of the only node."""
    await gateway.store.register_node("n1", registration("n1"))
    answer = await admin.post(JOBS, json=SPEC, params={"project": "vision"})
    job = answer.json()["id"]
    held = to_json(placement("n1/gpu-0", "n1/gpu-1", kind=KIND))
    await gateway.move(job, JobState.RUNNING, placement=held)
    return job


async def test_a_quota_is_stored_shown_and_replaced_whole(gateway, admin):
    answer = await admin.put(f"{PROJECTS}/vision", json=QUOTA)
    assert answer.status_code == 200
    (stored,) = await gateway.store.projects()
    assert stored == Project(
        name="vision",
        weight=2.0,
        devices=DeviceQuota(limit=64),
        kinds={KIND: DeviceQuota(nominal=1, limit=4)},
        max_unfinished_jobs=10,
        max_running_jobs=3,
    )
    shown = (await admin.get(f"{PROJECTS}/vision")).json()
    assert shown["settings"]["kinds"] == {KIND: {"nominal": 1, "limit": 4}}
    assert shown["notes"] == [f"no node has the kind '{KIND}'; present: none"]
    await admin.put(f"{PROJECTS}/vision", json={})
    assert await gateway.store.projects() == (Project(name="vision"),)


async def test_use_is_shown_and_what_is_borrowed(admin, running):
    await admin.put(f"{PROJECTS}/vision", json=QUOTA)
    shown = (await admin.get(f"{PROJECTS}/vision")).json()
    assert shown["uses"] == [{"kind": KIND, "used": 2, "borrowed": 1}]
    assert (shown["running_jobs"], shown["waiting_jobs"]) == (1, 0)
    assert shown["notes"] == []


async def test_nothing_is_borrowed_where_nobody_owns_anything(admin, running):
    shown = (await admin.get(f"{PROJECTS}/vision")).json()
    assert shown["uses"] == [{"kind": KIND, "used": 2, "borrowed": 0}]
    await admin.put(f"{PROJECTS}/audio", json={"devices": {"nominal": 1}})
    shown = (await admin.get(f"{PROJECTS}/vision")).json()
    assert shown["uses"] == [{"kind": KIND, "used": 2, "borrowed": 2}]


async def test_limits_below_use_are_accepted_and_said(admin, running):
    body = {
        "kinds": {KIND: {"limit": 1}},
        "devices": {"limit": 1},
        "max_running_jobs": 0,
        "max_unfinished_jobs": 0,
    }
    notes = (await admin.put(f"{PROJECTS}/vision", json=body)).json()["notes"]
    assert [note.partition(":")[0] for note in notes] == [
        f"it uses 2 x {KIND}, more than the limit of 1",
        "it uses 2 GPUs, more than the limit of 1",
        "it uses 1 running jobs, more than the limit of 0",
        "it has 1 unfinished jobs, more than 0",
    ]
    assert all("nothing is stopped" in note for note in notes[:3])


async def test_shares_that_cannot_all_be_had_are_said(admin, running):
    await admin.put(f"{PROJECTS}/vision", json={"kinds": {KIND: {"nominal": 2}}})
    answer = await admin.put(f"{PROJECTS}/audio", json={"kinds": {KIND: {"nominal": 1}}})
    (note,) = answer.json()["notes"]
    assert note.startswith(f"all projects' own shares of {KIND} add up to 3, and the cluster has 2")


async def test_the_list_has_stored_projects_and_those_with_jobs(gateway, admin, running):
    await admin.put(f"{PROJECTS}/audio", json={})
    names = [one["name"] for one in (await admin.get(PROJECTS)).json()["projects"]]
    assert names == ["audio", "vision"]
    viewer = await gateway.client(Role.VIEWER, project="audio")
    assert [one["name"] for one in (await viewer.get(PROJECTS)).json()["projects"]] == ["audio"]


async def test_only_an_administrator_of_all_projects_sets_quotas(gateway, problem):
    own = await gateway.client(Role.ADMIN, project="vision")
    said = problem(await own.put(f"{PROJECTS}/vision", json={}), 403, "forbidden")
    assert "admin of all projects" in said["detail"]
    viewer = await gateway.client(Role.VIEWER, project="vision")
    problem(await viewer.put(f"{PROJECTS}/vision", json={}), 403, "forbidden")
    assert (await viewer.get(f"{PROJECTS}/vision")).status_code == 200
    problem(await viewer.get(f"{PROJECTS}/audio"), 403, "forbidden")


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        ({"weight": 0}, "/weight", "greater than or equal to 0.001"),
        ({"weight": 1e-308}, "/weight", "greater than or equal to 0.001"),
        ({"kinds": {"": {"limit": 1}}}, "/kinds", "1 to 100 printable characters"),
        ({"kinds": {"a\0": {"limit": 1}}}, "/kinds", "1 to 100 printable characters"),
        ({"kinds": {" T4": {"limit": 1}}}, "/kinds", "no blank"),
        ({"kinds": {"x" * 100_000: {"limit": 1}}}, "/kinds", "1 to 100 printable characters"),
        ({"weight": "2"}, "/weight", "number"),
        ({"max_running_jobs": -1}, "/max_running_jobs", "greater than or equal to 0"),
        ({"devices": {"nominal": 3, "limit": 2}}, "/devices", "nominal (3) is above limit (2)"),
        ({"kinds": {"T4": {"limt": 2}}}, "/kinds/T4/limt", "did you mean 'limit'?"),
        ({"quota": 2}, "/quota", "unknown key; known: weight, devices"),
    ],
)
async def test_wrong_quotas_are_refused_with_the_field(admin, problem, body, pointer, said):
    answer = problem(await admin.put(f"{PROJECTS}/vision", json=body), 422, "invalid_spec")
    (error,) = answer["errors"]
    assert error["pointer"] == pointer
    assert said in error["detail"]


async def test_a_project_that_nobody_made_is_said_to_have_defaults(admin):
    shown = (await admin.get(f"{PROJECTS}/nope")).json()
    assert shown["settings"]["weight"] == 1.0
    (note,) = shown["notes"]
    assert note.startswith("nothing was ever set for this project and it has no unfinished jobs")
    assert (await admin.put(f"{PROJECTS}/nope", json={})).json()["notes"] == []
    assert (await admin.get(f"{PROJECTS}/nope")).json()["notes"] == []


async def test_a_projects_name_is_checked(admin, problem):
    problem(await admin.put(f"{PROJECTS}/Vision", json={}), 422, "invalid_spec")
    problem(await admin.put(f"{PROJECTS}/cluster", json={}), 422, "invalid_spec")


async def test_a_full_project_refuses_submissions_with_numbers(admin, problem):
    await admin.put(f"{PROJECTS}/default", json={"max_unfinished_jobs": 1})
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201
    said = problem(await admin.post(JOBS, json=SPEC), 403, "quota_exceeded")
    assert "1 of 1 unfinished jobs" in said["detail"]
    assert said["suggestions"] == ["wait for jobs to finish, or cancel some"]
