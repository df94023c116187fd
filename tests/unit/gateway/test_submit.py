import asyncio
import json

import pytest
from tests.unit.gateway.conftest import SPEC

from frenzy_shared.auth import Role
from frenzy_shared.domain.cluster import kinds_digest
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet, RefusedPlan
from frenzy_shared.domain.project import Project
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.state.rules import IDEMPOTENCY_S

JOBS = "/api/v1/jobs"
NOTHING_FITS = PlanReply(
    plans=PlanSet(
        plans=(),
        refused=(
            RefusedPlan(
                kind="rtx",
                device_count=1,
                option="1 x RTX",
                reason="not among the pinned kinds",
                pin="resources.kinds",
            ),
            RefusedPlan(
                kind="a100",
                device_count=1,
                option="1 x A100",
                reason="needs 92 GiB, the device has 80 GiB",
                shortfall_bytes=12,
            ),
            RefusedPlan(
                kind="h100",
                device_count=1,
                option="1 x H100",
                reason="needs 85 GiB, the device has 80 GiB",
                shortfall_bytes=5,
            ),
        ),
        kinds_digest="d",
        message="needs at least 85 GiB",
    )
)


async def test_a_job_is_accepted_with_its_event_and_everything_the_spec_says(gateway, admin):
    spec = {**SPEC, "name": "my-run", "priority": 70, "labels": {"team": "nlp", "a": "b"}}
    response = await admin.post(JOBS, json=spec, headers={"Idempotency-Key": "k"})
    assert response.status_code == 201
    job = response.json()
    assert response.headers["location"] == f"{JOBS}/{job['id']}"
    assert (job["name"], job["priority"], job["labels"]) == (
        "my-run",
        70,
        {"team": "nlp", "a": "b"},
    )
    assert (job["state"], job["version"], job["submitted_by"]) == ("SUBMITTED", 1, "admin-token")
    assert (await admin.get(response.headers["location"])).json() == job
    [entry] = await gateway.store.read_outbox("", 10)
    assert entry.subject == f"frenzy.v1.evt.default.job.submitted.{job['id']}"
    assert entry.record["id"] == job["id"]
    stored = (await admin.get(f"{JOBS}/{job['id']}/spec")).json()
    assert {**stored, **spec} == stored


async def test_the_same_request_again_is_the_same_job_even_if_the_cluster_changed(gateway, admin):
    first = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    await gateway.marp_answers(NOTHING_FITS)
    reordered = dict(reversed(SPEC.items()))
    again = await admin.post(JOBS, json=reordered, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
    assert len((await admin.get(JOBS)).json()["jobs"]) == 1


async def test_the_same_key_with_another_body_is_a_conflict_naming_the_job(admin, problem):
    first = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    body = problem(
        await admin.post(JOBS, json={**SPEC, "seed": 1}, headers={"Idempotency-Key": "k"}),
        422,
        "idempotency_conflict",
    )
    assert first.json()["id"] in body["detail"]
    assert len((await admin.get(JOBS)).json()["jobs"]) == 1


async def test_keys_of_different_projects_do_not_meet(admin):
    ids = set()
    for project in ("a", "b"):
        response = await admin.post(
            f"{JOBS}?project={project}", json=SPEC, headers={"Idempotency-Key": "k"}
        )
        assert response.status_code == 201
        ids.add(response.json()["id"])
    assert len(ids) == 2


async def test_without_a_key_each_request_is_a_new_job(admin):
    ids = {(await admin.post(JOBS, json=SPEC)).json()["id"] for _ in range(3)}
    assert len(ids) == 3


async def test_many_at_once_with_one_key_make_one_job(gateway, admin):
    requests = (admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"}) for _ in range(20))
    responses = await asyncio.gather(*requests)
    assert sorted(response.status_code for response in responses) == [200] * 19 + [201]
    assert len({response.json()["id"] for response in responses}) == 1


async def test_many_at_once_with_one_key_and_different_bodies_make_one_job(admin):
    requests = (
        admin.post(JOBS, json={**SPEC, "seed": n}, headers={"Idempotency-Key": "k"})
        for n in range(10)
    )
    statuses = sorted(response.status_code for response in await asyncio.gather(*requests))
    assert statuses == [201] + [422] * 9


async def test_a_key_finds_its_job_also_after_the_store_forgot_the_key(gateway, admin):
    first = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    gateway.clock.now += (IDEMPOTENCY_S + 1) * 1000
    again = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "schl\u00fcssel".encode(), "tab\tkey"])
async def test_keys_have_limits(admin, problem, key):
    problem(await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": key}), 400, "bad_request")


async def test_the_longest_key_is_accepted(admin):
    assert (
        await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "~" * 255})
    ).status_code == 201


@pytest.mark.parametrize("project", ["cluster", "", "A", "a.b", "a b", "-a", "x" * 64, "*", "a>"])
async def test_project_names_have_rules(admin, problem, project):
    body = problem(
        await admin.post(JOBS, params={"project": project}, json=SPEC), 422, "invalid_spec"
    )
    assert body["errors"][0]["pointer"] == "/project"


@pytest.mark.parametrize(
    ("change", "pointer", "text"),
    [
        ({"gpu_cont": 1}, "/gpu_cont", "unknown key"),
        ({"global_batch_sise": 1}, "/global_batch_sise", "did you mean 'global_batch_size'"),
        ({"resources": {"gpuss": 1}}, "/resources/gpuss", "did you mean 'gpus'"),
        ({"global_batch_size": 0}, "/global_batch_size", "greater than or equal to 1"),
        ({"global_batch_size": -5}, "/global_batch_size", "got -5"),
        ({"global_batch_size": "8"}, "/global_batch_size", "must be a whole number (got '8')"),
        ({"global_batch_size": 8.5}, "/global_batch_size", "whole number"),
        ({"global_batch_size": True}, "/global_batch_size", "whole number"),
        ({"sequence_length": 10**9}, "/sequence_length", "less than or equal"),
        ({"learning_rate": 0}, "/learning_rate", "greater than 0"),
        ({"precision": "fp7"}, "/precision", "fp32"),
        ({"optimizer": "adamx"}, "/optimizer", "adamw"),
        ({"resources": {"zero_stage": 5}}, "/resources/zero_stage", "less than or equal to 3"),
        ({"resources": {"gpu_memory": "80GB..24GB"}}, "/resources/gpu_memory", "above its end"),
        ({"name": "<script>"}, "/name", "a-z"),
        ({"name": "../../etc"}, "/name", "a-z"),
        ({"name": ""}, "/name", "1-63"),
        ({"env": {"LD_PRELOAD": "x"}}, "/env", "reserved"),
        ({"env": {"A": "x" * 9000}}, "/env/A", "8192"),
        ({"priority": 10**12}, "/priority", "100"),
        ({"max_duration": "-5h"}, "/max_duration", "positive"),
        ({"data": "/etc/shadow"}, "/data", "blob:sha256"),
        ({"data": "node:/a/../../etc"}, "/data", "node:"),
        ({"entrypoint": {"script": "$(id)"}, "workdir": "node:/w"}, "/entrypoint/script", ".py"),
        ({"max_steps": 1, "epochs": 1}, "", "not both"),
    ],
)
async def test_wrong_fields_are_named_and_nothing_is_stored(
    gateway, admin, problem, change, pointer, text
):
    body = problem(await admin.post(JOBS, json={**SPEC, **change}), 422, "invalid_spec")
    [error] = [item for item in body["errors"] if item["pointer"] == pointer]
    assert text in error["detail"]
    assert (await admin.get(JOBS)).json()["jobs"] == []
    assert await gateway.store.read_outbox("", 10) == ()


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"model": "nosuch"}, "/model"),
        ({"model": {"model_type": "bert"}}, "/model"),
        ({"model": {"model_type": "gpt2", "n_embd": 7, "n_head": 2}}, "/model/n_embd"),
        ({"model": {"model_type": "llama", "hidden_size": 0}}, "/model/hidden_size"),
        ({"model": {"model_type": "llama", "hidden_size": -1}}, "/model/hidden_size"),
        ({"sequence_length": 5000}, "/sequence_length"),
    ],
)
async def test_impossible_models_are_refused_also_while_marp_is_silent(
    admin, problem, change, pointer
):
    for path in (JOBS, f"{JOBS}?validate_only=true", "/api/v1/plans"):
        response = await admin.post(path, json={**SPEC, **change})
        body = problem(response, 422, response.json()["code"])
        assert body["code"] in ("invalid_spec", "invalid_model_config")
        assert any(item["pointer"].startswith(pointer) for item in body["errors"]), body
    assert (await admin.get(JOBS)).json()["jobs"] == []


async def test_not_a_number_names_the_field(admin, problem):
    body = json.dumps({**SPEC, "learning_rate": float("nan")})
    answer = problem(
        await admin.post(JOBS, content=body, headers={"Content-Type": "application/json"}),
        422,
        "invalid_spec",
    )
    assert answer["errors"][0]["pointer"] == "/learning_rate"


@pytest.mark.parametrize("document", [[], "x", 5, None])
async def test_a_spec_is_a_mapping(admin, problem, document):
    body = problem(
        await admin.post(
            JOBS, content=json.dumps(document), headers={"Content-Type": "application/json"}
        ),
        422,
        "invalid_spec",
    )
    assert "mapping" in body["detail"]


async def test_a_spec_that_could_not_be_stored_is_too_large(admin, problem):
    spec = {**SPEC, "model": {"vocab": "x" * 70_000}}
    problem(await admin.post(JOBS, json=spec), 413, "payload_too_large")


async def test_blobs_that_are_not_stored_are_named(gateway, admin, problem):
    missing = "blob:sha256:" + "0" * 64
    body = problem(await admin.post(JOBS, json={**SPEC, "data": missing}), 422, "blob_missing")
    assert body["errors"] == [
        {"pointer": "/data", "detail": f"no blob {missing.removeprefix('blob:')} is stored"}
    ]

    async def content():
        yield b"text"

    digest = await gateway.blobs.put(content())
    assert (await admin.post(JOBS, json={**SPEC, "data": f"blob:{digest}"})).status_code == 201


async def test_a_job_that_can_never_run_is_refused_with_pins_and_near_misses(
    gateway, admin, problem
):
    await gateway.marp_answers(NOTHING_FITS)
    body = problem(await admin.post(JOBS, json=SPEC), 422, "no_feasible_plan")
    assert body["detail"] == "needs at least 85 GiB"
    assert body["errors"] == [
        {"pointer": "/resources/kinds", "detail": "1 x RTX: not among the pinned kinds"}
    ]
    hints = "\n".join(body["suggestions"])
    assert "resources.kinds" in hints
    assert "force_queue" in hints
    assert hints.index("H100") < hints.index("A100")  # the nearest miss first
    assert (await admin.get(JOBS)).json()["jobs"] == []
    assert PlanRequest.decode(gateway.marp[0].payload).spec.model == "gpt2"


async def test_force_queue_accepts_what_does_not_fit_today(gateway, admin):
    await gateway.marp_answers(NOTHING_FITS)
    response = await admin.post(f"{JOBS}?force_queue=true", json=SPEC)
    assert response.status_code == 201
    assert (await gateway.store.job(response.json()["id"])).force_queue


@pytest.mark.parametrize("code", ["invalid", "invalid_spec", "invalid_model_config"])
async def test_what_marp_finds_wrong_with_the_model_is_the_callers_error(
    gateway, admin, problem, code
):
    await gateway.marp_answers(
        PlanReply(
            error_code=code, error="heads do not divide hidden_size", suggestions=("use 12 heads",)
        )
    )
    expected = "invalid_model_config" if code == "invalid_model_config" else "invalid_spec"
    body = problem(await admin.post(JOBS, json=SPEC), 422, expected)
    assert "heads" in body["detail"]
    assert body["suggestions"] == ["use 12 heads"]


async def test_an_infeasible_answer_without_plans_is_a_refusal_too(gateway, admin, problem):
    await gateway.marp_answers(PlanReply(error_code="no_feasible_plan", error="needs 900 GiB"))
    problem(await admin.post(JOBS, json=SPEC), 422, "no_feasible_plan")
    assert (await admin.post(f"{JOBS}?force_queue=true", json=SPEC)).status_code == 201


async def test_a_cluster_without_nodes_is_waited_for(gateway, admin):
    nothing = PlanSet(plans=(), refused=(), kinds_digest=kinds_digest(()), message="no devices")
    await gateway.marp_answers(PlanReply(plans=nothing))
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201


async def test_marps_own_trouble_is_no_objection(gateway, admin):
    await gateway.marp_answers(PlanReply(error_code="unavailable", error="store down"))
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201


async def test_an_answer_that_cannot_be_read_is_no_objection(gateway, admin):
    async def nonsense(_message):
        return b"?"

    await gateway.bus.serve("frenzy.v1.rpc.marp.plan", nonsense)
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201


async def test_a_silent_marp_costs_only_its_budget(gateway, admin):
    async def silent(_message):
        return None

    await gateway.bus.serve("frenzy.v1.rpc.marp.plan", silent)
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201


async def test_validate_only_checks_everything_and_stores_nothing(gateway, admin, problem):
    response = await admin.post(f"{JOBS}?validate_only=true", json=SPEC)
    assert (response.status_code, response.json()["id"]) == (200, "")
    await gateway.marp_answers(NOTHING_FITS)
    problem(await admin.post(f"{JOBS}?validate_only=true", json=SPEC), 422, "no_feasible_plan")
    problem(
        await admin.post(f"{JOBS}?validate_only=true", json={**SPEC, "seed": -1}),
        422,
        "invalid_spec",
    )
    assert (await admin.get(JOBS)).json()["jobs"] == []
    assert await gateway.store.read_outbox("", 10) == ()


async def test_a_full_quota_is_refused_with_its_numbers(gateway, admin, problem):
    await gateway.store.put_project(Project(name="default", max_unfinished_jobs=1))
    first = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    assert first.status_code == 201
    assert "1 of 1" in problem(await admin.post(JOBS, json=SPEC), 403, "quota_exceeded")["detail"]
    assert (await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})).status_code == 200
    await gateway.move(first.json()["id"], JobState.CANCELLED)
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201


@pytest.mark.parametrize(
    ("pressure", "text"),
    [({"outbox_lag": 10_001}, "10001 events"), ({"memory_used_ratio": 0.95}, "95% full")],
)
async def test_a_store_under_pressure_takes_no_new_work(gateway, admin, problem, pressure, text):
    accepted = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    gateway.store.pressure = pressure
    response = await admin.post(JOBS, json=SPEC)
    assert text in problem(response, 503, "unavailable")["detail"]
    assert int(response.headers["retry-after"]) > 0
    again = await admin.post(JOBS, json=SPEC, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, accepted.json()["id"])


async def test_a_store_that_is_down_accepts_nothing(gateway, admin, problem):
    gateway.store.down = True
    response = await admin.post(JOBS, json=SPEC)
    problem(response, 503, "unavailable")
    assert int(response.headers["retry-after"]) > 0
    gateway.store.down = False
    assert (await admin.get(JOBS)).json()["jobs"] == []


async def test_a_store_that_fails_after_accepting_does_not_turn_it_into_a_refusal(gateway, admin):
    real = gateway.store.submit

    async def submit(op, submission):
        result = await real(op, submission)
        gateway.store.down = True
        return result

    gateway.store.submit = submit
    response = await admin.post(JOBS, json=SPEC)
    assert (response.status_code, response.json()["state"]) == (201, "SUBMITTED")
    gateway.store.down = False
    assert (await admin.get(response.headers["location"])).json() == response.json()


async def test_a_bus_that_is_down_does_not_stop_submissions(gateway, admin):
    gateway.broker.available = False
    response = await admin.post(JOBS, json=SPEC)
    assert response.status_code == 201
    ready = await admin.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")


async def test_the_callers_trace_goes_into_the_job_and_its_event(gateway, admin):
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    response = await admin.post(
        JOBS, json=SPEC, headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    )
    record = await gateway.store.job(response.json()["id"])
    assert record.traceparent.split("-")[1] == trace_id
    [entry] = await gateway.store.read_outbox("", 10)
    assert entry.traceparent.split("-")[1] == trace_id
    [span] = [
        span for span in gateway.spans.get_finished_spans() if span.name == "POST /api/v1/jobs"
    ]
    assert f"{span.context.span_id:016x}" == record.traceparent.split("-")[2]
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"


async def test_a_submitter_may_submit(gateway):
    async with await gateway.client(Role.SUBMITTER) as client:
        assert (await client.post(JOBS, json=SPEC)).status_code == 201
