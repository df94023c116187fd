"""What can be looked at: jobs, plans, timelines, metrics, explanations, nodes."""

import pytest
from tests.support.plans import resource_plan
from tests.unit.gateway.conftest import SPEC

from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import (
    PlanSet,
)
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import ExplainReply, PlanReply
from frenzy_shared.state.port import Change, Claim, NodeRegistration

JOBS = "/api/v1/jobs"


def plan(name, kind="a100"):
    return resource_plan(name, kind, micro_batch_size=8, deepspeed_config={"train_batch_size": 8})


PLANS = PlanSet(plans=(plan("p1"), plan("p2", "rtx")), refused=(), kinds_digest="d")


async def submit(client, **changes):
    return (await client.post(JOBS, json={**SPEC, **changes})).json()["id"]


async def add_node(gateway, name="n1"):
    result = await gateway.store.register_node(
        f"register:{name}",
        NodeRegistration(
            node=name,
            boot_id="b",
            address="127.0.1.1",
            devices=(Device(id="d0", kind="rtx", memory_bytes=10),),
        ),
    )
    await gateway.store.apply(f"up:{name}", Change(entity=f"node:{name}", patch={"state": "UP"}))
    return result.epoch


async def place(gateway, job, plan_id="p2"):
    epoch = await add_node(gateway)
    placement = {
        "plan": plan_id,
        "kind": "rtx",
        "devices": [{"node": "n1", "device": "d0", "epoch": epoch}],
    }
    result = await gateway.store.apply(
        f"place:{job}",
        Change(
            entity=f"job:{job}",
            patch={"state": "RESERVED", "attempt": 1, "placement": placement},
            claims=(Claim(node="n1", device="d0", epoch=epoch),),
        ),
    )
    assert result.ok, result


async def test_pages_cover_every_job_once_newest_first(admin):
    made = [await submit(admin) for _ in range(7)]
    seen, token = [], ""
    while True:
        page = (await admin.get(JOBS, params={"page_size": 3, "page_token": token})).json()
        seen += [job["id"] for job in page["jobs"]]
        token = page["next_page_token"]
        if not token:
            break
    assert seen == made[::-1]


async def test_jobs_are_filtered_by_state_project_and_labels(gateway, admin):
    first = await submit(admin, labels={"team": "nlp"})
    second = await submit(admin, labels={"team": "vision", "x": "1"})
    await gateway.move(second, JobState.QUEUED)
    other = (await admin.post(f"{JOBS}?project=other", json=SPEC)).json()["id"]

    async def found(query):
        return {job["id"] for job in (await admin.get(f"{JOBS}?{query}")).json()["jobs"]}

    assert await found("state=QUEUED") == {second}
    assert await found("state=QUEUED&state=SUBMITTED&project=default") == {first, second}
    assert await found("project=other") == {other}
    assert await found("label.team=nlp") == {first}
    assert await found("label.team=vision&label.x=1") == {second}
    assert await found("label.team=vision&label.x=2") == set()
    assert await found("") == {first, second, other}


@pytest.mark.parametrize(
    "query",
    [
        "page_size=0",
        "page_size=201",
        "page_size=1000000000",
        "page_size=x",
        "page_token=garbage",
        "page_token=before-0",
        "state=DONE",
        "label.A_B=1",
        "label.=1",
    ],
)
async def test_wrong_listing_parameters_are_refused(admin, problem, query):
    body = problem(await admin.get(f"{JOBS}?{query}"), 400, "bad_request")
    assert query.split("=")[0].split(".")[0].replace("page_token", "page token") in body[
        "detail"
    ].replace("_token", " token")


async def test_a_job_shows_its_best_plan_then_the_one_it_runs_with(gateway, admin, job):
    assert (await admin.get(f"{JOBS}/{job}")).json()["plan"] is None
    assert (await admin.get(f"{JOBS}/{job}/plans")).json()["plans"]["plans"] == []
    await gateway.store_plans(job, PLANS)
    await gateway.move(job, JobState.QUEUED)
    assert (await admin.get(f"{JOBS}/{job}")).json()["plan"]["id"] == "p1"
    assert len((await admin.get(f"{JOBS}/{job}/plans")).json()["plans"]["plans"]) == 2
    await place(gateway, job)
    body = (await admin.get(f"{JOBS}/{job}")).json()
    assert (body["plan"]["id"], body["kind"], body["attempt"]) == ("p2", "rtx", 1)
    assert body["plan"]["deepspeed_config"] == {"train_batch_size": 8}
    assert body["devices"] == [{"node": "n1", "device": "d0"}]


async def test_a_plan_that_was_replaced_is_not_shown_as_another_one(gateway, admin, job):
    await gateway.move(job, JobState.QUEUED)
    await gateway.store_plans(job, PLANS)
    await place(gateway, job, plan_id="older")
    assert (await admin.get(f"{JOBS}/{job}")).json()["plan"] is None


async def test_a_waiting_job_says_why_also_in_the_list(gateway, admin, job):
    await gateway.move(job, JobState.QUEUED)
    pending = {
        "reason": "WaitingForCapacity",
        "message": "needs 2 free",
        "nearest": "1 free on n1",
        "position": 3,
    }
    await gateway.store.apply(
        "pending", Change(entity=f"job:{job}", documents={"pending": pending})
    )
    assert (await admin.get(f"{JOBS}/{job}")).json()["pending"] == pending
    assert (await admin.get(JOBS)).json()["jobs"][0]["pending"] == pending
    await place(gateway, job)
    assert (await admin.get(f"{JOBS}/{job}")).json()["pending"] is None


async def test_the_outcome_of_each_rank_is_shown(gateway, admin, job):
    outcome = {
        "rank": 0,
        "exit_code": 1,
        "reason": "UserCodeError",
        "message": "boom",
        "peak_allocated_bytes": 5,
    }
    await gateway.move(
        job,
        JobState.FAILED,
        reason="UserCodeError",
        outcomes=[outcome],
        finished_ms=gateway.clock.now,
    )
    body = (await admin.get(f"{JOBS}/{job}")).json()
    assert body["ranks"][0] == {**body["ranks"][0], **outcome}
    assert body["finished_at"] == "2023-11-14T22:13:20Z"


async def test_the_timeline_is_oldest_first(gateway, admin, job):
    await gateway.move(job, JobState.QUEUED)
    await gateway.move(job, JobState.CANCELLED, reason="ByUser")
    entries = (await admin.get(f"{JOBS}/{job}/timeline")).json()["entries"]
    assert [(entry["state"], entry["version"]) for entry in entries] == [
        ("SUBMITTED", 1),
        ("QUEUED", 2),
        ("CANCELLED", 3),
    ]
    assert entries[-1]["reason"] == "ByUser"


async def test_metrics_are_the_kept_points(gateway, admin, job):
    assert (await admin.get(f"{JOBS}/{job}/metrics")).json() == {"points": []}
    await gateway.store.append_series(job, [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}])
    assert (await admin.get(f"{JOBS}/{job}/metrics")).json()["points"] == [
        {"step": 1, "loss": 2.5},
        {"step": 2, "loss": 2.25},
    ]


async def test_an_explanation_comes_from_the_scheduler_else_from_the_store(gateway, admin, job):
    await gateway.move(job, JobState.QUEUED)
    pending = {"reason": "WaitingForCapacity", "message": "stored", "nearest": "", "position": 1}
    await gateway.store.apply(
        "pending", Change(entity=f"job:{job}", documents={"pending": pending})
    )
    body = (await admin.get(f"{JOBS}/{job}/explain")).json()
    assert (body["source"], body["reason"], body["message"], body["position"]) == (
        "store",
        "WaitingForCapacity",
        "stored",
        1,
    )

    async def answer(_message):
        return ExplainReply(
            state="QUEUED", reason="CapacityFragmented", message="fresh", nearest="n1", position=2
        ).encode()

    await gateway.bus.serve(subjects.SCHEDULER_EXPLAIN, answer)
    body = (await admin.get(f"{JOBS}/{job}/explain")).json()
    assert (body["source"], body["reason"], body["message"], body["nearest"]) == (
        "scheduler",
        "CapacityFragmented",
        "fresh",
        "n1",
    )


async def test_a_failed_job_explains_itself_from_its_record(gateway, admin, job):
    await gateway.move(job, JobState.FAILED, reason="DataError", message="file is empty")
    body = (await admin.get(f"{JOBS}/{job}/explain")).json()
    assert (body["state"], body["reason"], body["message"]) == (
        "FAILED",
        "DataError",
        "file is empty",
    )


async def test_nodes_show_who_owns_what(gateway, admin, job):
    await gateway.move(job, JobState.QUEUED)
    await place(gateway, job)
    await add_node(gateway, "a0")
    nodes = (await admin.get("/api/v1/nodes")).json()["nodes"]
    assert [
        (node["id"], node["state"], node["devices"][0]["owner"], node["devices"][0]["attempt"])
        for node in nodes
    ] == [("a0", "UP", "", None), ("n1", "UP", job, 1)]


async def test_plans_are_a_dry_run(gateway, admin, problem):
    response = await admin.post("/api/v1/plans", json=SPEC)
    problem(response, 503, "unavailable")
    assert "retry-after" in response.headers
    await gateway.marp_answers(PlanReply(plans=PLANS))
    body = (await admin.post("/api/v1/plans?project=mine", json=SPEC)).json()
    assert [item["id"] for item in body["plans"]["plans"]] == ["p1", "p2"]
    assert (await admin.get(JOBS)).json()["jobs"] == []


async def test_plans_say_what_is_wrong_with_the_model(gateway, admin, problem):
    await gateway.marp_answers(PlanReply(error_code="invalid_model_config", error="unknown family"))
    problem(await admin.post("/api/v1/plans", json=SPEC), 422, "invalid_model_config")
    problem(await admin.post("/api/v1/plans", json={}), 422, "invalid_spec")


async def test_an_infeasible_plan_is_an_answer_not_an_error(gateway, admin):
    await gateway.marp_answers(
        PlanReply(plans=PlanSet(plans=(), refused=(), kinds_digest="", message="no"))
    )
    response = await admin.post("/api/v1/plans", json=SPEC)
    assert (response.status_code, response.json()["plans"]["message"]) == (200, "no")


async def test_listings_say_that_nothing_moves(gateway, admin, job):
    async def told():
        found = [(await admin.get(f"/api/v1/{what}")).json() for what in ("jobs", "nodes")]
        return {listing["safe_mode"] for listing in found}

    assert await told() == {""}
    await gateway.store.enter_safe_mode("it is an old copy")
    assert await told() == {"it is an old copy"}
