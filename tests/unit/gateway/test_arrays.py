"""Arrays of jobs over HTTP: one request, many jobs, each once."""

import pytest
from tests.support.secrets import key_file
from tests.unit.gateway.conftest import SPEC

from frenzy_gateway.adapters.sealing import Sealer
from frenzy_gateway.expansion import expand
from frenzy_shared.auth import Role
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet, RefusedPlan
from frenzy_shared.domain.project import Project
from frenzy_shared.errors import InvalidSpec, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest

ARRAYS = "/api/v1/arrays"
JOBS = "/api/v1/jobs"
SCRIPT = {
    **SPEC,
    "name": "sweep",
    "workdir": "node:/code",
    "entrypoint": {"script": "train.py", "args": ["--part={index}", "--lr", "{value}", "{x}"]},
    "env": {"PART": "{index} of {value}"},
}


async def submit(client, array, key=None, **spec):
    headers = {"Idempotency-Key": key} if key else {}
    return await client.post(ARRAYS, json={**SPEC, "array": array, **spec}, headers=headers)


async def records(gateway, answer):
    return [await gateway.store.job(JobId(job)) for job in answer.json()["jobs"]]


async def test_an_array_is_many_jobs_with_its_labels(gateway, admin):
    answer = await submit(admin, {"count": 3}, name="part", labels={"team": "x"})
    assert answer.status_code == 201
    array = answer.json()["id"]
    assert answer.headers["location"] == f"/api/v1/jobs?label.array={array}"
    jobs = await records(gateway, answer)
    assert [job.name for job in jobs] == ["part-0", "part-1", "part-2"]
    assert [job.sequence for job in jobs] == [1, 2, 3]
    assert dict(jobs[2].labels) == {"team": "x", "array": array, "array-index": "2"}
    listed = (await admin.get(answer.headers["location"])).json()["jobs"]
    assert [job["id"] for job in listed] == list(reversed(answer.json()["jobs"]))


def test_places_are_filled_in_arguments_and_environment_only():
    spec = parse_spec({**SCRIPT, "array": {"values": ["0.1", "{index}"]}})
    first, second = expand(spec, "a1", "sweep")
    assert first.entrypoint.args == ("--part=0", "--lr", "0.1", "{x}")
    assert first.env == {"PART": "0 of 0.1"}
    assert second.entrypoint.args[2] == "{index}"  # what a value says is not filled again
    assert first.array is None


def test_values_may_change_keys_of_the_specification():
    values = [{"learning_rate": 0.001, "labels": {"try": "a"}}, {"seed": 7}]
    spec = parse_spec({**SPEC, "labels": {"team": "x"}, "array": {"values": values}})
    first, second = expand(spec, "a1", "gpt2")
    assert (first.learning_rate, first.seed) == (0.001, 0)
    assert (second.learning_rate, second.seed) == (3e-4, 7)
    assert first.labels == {"team": "x", "try": "a", "array": "a1", "array-index": "0"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"array": {"values": [{"seed": -1}]}}, "array.0: seed: "),
        ({"array": {"values": [{"sede": 1}]}}, "array.0: sede: unknown key 'sede'; did you mean"),
        ({"array": {"values": [{"depends_on": []}]}}, "the same for all jobs of an array"),
        ({"array": {"count": 1}, "labels": {"array": "x"}}, "is set by Frenzy"),
        ({"array": {"count": 1000}, "name": "n" * 60}, "array.100: name"),
        ({}, "array: is required"),
    ],
)
def test_what_makes_no_jobs_is_refused_with_the_value(spec, said):
    made = parse_spec({**SPEC, **spec})
    with pytest.raises(InvalidSpec) as error:
        expand(made, "a1", made.name or "gpt2")
    assert said in error.value.message


@pytest.mark.parametrize(
    "array",
    [
        {},
        {"count": 0},
        {"count": 1001},
        {"values": []},
        {"count": 2, "values": ["a"]},
        {"cuont": 1},
    ],
)
async def test_impossible_arrays_are_refused(admin, problem, array):
    problem(await submit(admin, array), 422, "invalid_spec")


async def test_a_retry_makes_no_second_jobs(admin, problem):
    first = await submit(admin, {"count": 3}, key="k")
    again = await submit(admin, {"count": 3}, key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["jobs"] == first.json()["jobs"]
    assert len((await admin.get(JOBS)).json()["jobs"]) == 3
    problem(await submit(admin, {"count": 3}, key="k", seed=5), 422, "idempotency_conflict")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"count": 2}, {"count": 3}),
        ({"count": 2}, {"count": 1}),
        ({"count": 2}, {"count": 2, "at_most": 1}),
        ({"values": [{"seed": 1}, {"seed": 2}]}, {"values": [{"seed": 1}, {"seed": 3}]}),
        ({"values": [{"seed": 1}, {"seed": 2}]}, {"values": [{"seed": 1}]}),
        ({"values": [{}, {}]}, {"count": 2}),
    ],
)
async def test_a_key_is_good_for_one_array(gateway, admin, problem, first, second):
    made = await submit(admin, first, key="k")
    assert made.status_code == 201
    problem(await submit(admin, second, key="k"), 422, "idempotency_conflict")
    again = await submit(admin, first, key="k")
    assert (again.status_code, again.json()["jobs"]) == (200, made.json()["jobs"])
    assert len((await admin.get(JOBS)).json()["jobs"]) == 2


async def test_what_began_with_another_array_is_not_gone_on_with(gateway, admin, monkeypatch):
    stored = gateway.store.submit

    async def failing(op, submission):
        if ("array-index", "1") in submission.job.labels:
            raise Unavailable("the state store is unreachable")
        return await stored(op, submission)

    with monkeypatch.context() as patch:
        patch.setattr(gateway.store, "submit", failing)
        assert (await submit(admin, {"count": 2}, key="k")).status_code == 503
    assert (await submit(admin, {"count": 3}, key="k")).status_code == 422
    assert len((await admin.get(JOBS)).json()["jobs"]) == 1


async def test_a_retry_goes_on_where_the_store_failed(gateway, admin, monkeypatch):
    stored = gateway.store.submit

    async def failing(op, submission):
        if ("array-index", "2") in submission.job.labels:
            raise Unavailable("the state store is unreachable")
        return await stored(op, submission)

    with monkeypatch.context() as patch:
        patch.setattr(gateway.store, "submit", failing)
        assert (await submit(admin, {"count": 4}, key="k")).status_code == 503
    answer = await submit(admin, {"count": 4}, key="k")
    assert answer.status_code == 201
    assert [job.sequence for job in await records(gateway, answer)] == [1, 2, 3, 4]


async def test_at_most_so_many_run_at_a_time(gateway, admin):
    jobs = await records(gateway, await submit(admin, {"count": 5, "at_most": 2}))
    after = [[other.id for other in jobs if other.id in job.after] for job in jobs]
    assert after == [[], [], [jobs[0].id], [jobs[1].id], [jobs[2].id]]
    assert all(job.depends_on == () for job in jobs)


async def test_dependencies_are_those_of_every_job(gateway, admin):
    first = (await admin.post(JOBS, json={**SPEC, "name": "prepare"})).json()["id"]
    jobs = await records(gateway, await submit(admin, {"count": 2}, depends_on=["prepare"]))
    assert [job.depends_on for job in jobs] == [(first,), (first,)]


async def test_an_array_fits_the_quota_whole_or_not_at_all(gateway, admin, problem):
    await gateway.store.put_project(Project(name="default", max_unfinished_jobs=3))
    assert (await submit(admin, {"count": 2}, key="k")).status_code == 201
    said = problem(await submit(admin, {"count": 2}), 403, "quota_exceeded")
    assert "has 2 of 3 unfinished jobs; an array of 2 does not fit" in said["detail"]
    assert len((await admin.get(JOBS)).json()["jobs"]) == 2
    assert (await submit(admin, {"count": 2}, key="k")).status_code == 200


async def test_nothing_is_stored_when_one_job_is_wrong(admin, problem):
    values = [{"seed": 1}, {"data": "blob:sha256:" + "0" * 64}]
    problem(await submit(admin, {"values": values}), 422, "blob_missing")
    assert (await admin.get(JOBS)).json()["jobs"] == []


async def test_a_value_that_never_fits_is_named(gateway, admin, problem):
    no = RefusedPlan(kind="T4", device_count=1, option="1 x T4", reason="no", pin="resources.gpus")
    plans = PlanSet(plans=(), refused=(no,), kinds_digest="x", message="no plan is allowed")

    async def marp(message):
        wants = PlanRequest.decode(message.payload).spec.resources.gpus
        return PlanReply(plans=plans if wants == 99 else None, error="busy").encode()

    await gateway.bus.serve(subjects.MARP_PLAN, marp, queue="marp")
    values = [{"seed": 1}, {"resources": {"gpus": 99}}]
    said = problem(await submit(admin, {"values": values}), 422, "no_feasible_plan")
    assert said["detail"] == "array.1: no plan is allowed"
    assert said["errors"][0]["pointer"] == "/array/values/1/resources/gpus"
    assert said["suggestions"][-1] == "look at value 1 of the array, counted from 0"
    said = problem(
        await submit(admin, {"count": 2}, resources={"gpus": 99}), 422, "no_feasible_plan"
    )
    assert said["errors"][0]["pointer"] == "/resources/gpus"


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"seed": -1}, "/array/values/1/seed"),
        ({"data": "blob:sha256:" + "0" * 64}, "/array/values/1/data"),
        ({"secrets": {"TOKEN": "nope"}}, "/array/values/1/secrets/TOKEN"),
    ],
)
async def test_what_is_wrong_in_a_value_is_pointed_at(gateway, admin, tmp_path, value, pointer):
    object.__setattr__(gateway.service, "seal", Sealer.load(key_file(tmp_path)))
    answer = await submit(admin, {"values": [{}, value]})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("array.1: ")
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_job_that_is_too_large_stops_the_array_before_its_first(admin, problem):
    values = [{}, {"env": {f"E{n}": "x" * 8000 for n in range(9)}}]
    said = problem(await submit(admin, {"values": values}), 413, "payload_too_large")
    assert said["detail"].startswith("array.1: ")
    assert (await admin.get(JOBS)).json()["jobs"] == []


async def test_one_job_is_asked_for_elsewhere(admin, problem):
    body = {**SPEC, "array": {"count": 2}}
    assert "POST /api/v1/arrays" in problem(
        await admin.post(JOBS, json=body), 422, "invalid_spec"
    )["detail"]  # fmt: skip


async def test_cancelling_an_array_leaves_alone_what_is_over(gateway, admin, problem):
    answer = (await submit(admin, {"count": 3})).json()
    await gateway.move(answer["jobs"][0], JobState.SUCCEEDED)
    cancelled = (await admin.post(f"{ARRAYS}/{answer['id']}:cancel")).json()
    assert cancelled["jobs"] == answer["jobs"][1:]
    states = [job.state for job in [await gateway.store.job(JobId(j)) for j in answer["jobs"]]]
    assert states == ["SUCCEEDED", "CANCELLED", "CANCELLED"]
    other = await gateway.client(Role.SUBMITTER, project="other")
    problem(await other.post(f"{ARRAYS}/{answer['id']}:cancel"), 404, "not_found")
    problem(await admin.post(f"{ARRAYS}/No!:cancel"), 404, "not_found")
