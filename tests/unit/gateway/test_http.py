"""HTTP itself: errors of the framework, headers, limits, health, metrics, the contract."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.gateway.conftest import SPEC

from frenzy_gateway import problems
from frenzy_shared import errors
from frenzy_shared.domain.job import JobState
from frenzy_shared.errors import FieldProblem, FrenzyError

GOLDEN = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
JOBS = "/api/v1/jobs"
JSON = {"Content-Type": "application/json"}


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_error_has_its_status():
    known = [
        FrenzyError,
        *(
            kind
            for kind in subclasses(FrenzyError)
            if kind.__module__ in (errors.__name__, problems.__name__)
        ),
    ]
    assert len(known) > 15
    for kind in known:
        assert kind.code in problems._STATUS, kind


def test_something_missing_that_the_body_names_is_the_bodys_fault():
    assert problems.status_of(errors.BlobMissing("x")) == 404
    named = errors.BlobMissing("x", problems=(FieldProblem(pointer="/data", detail="x"),))
    assert problems.status_of(named) == 422


async def test_unknown_paths_and_methods_are_problems(admin, problem):
    for path in (
        "/",
        "/api/v1",
        "/api/v1/nope",
        "/api/v1/jobs/",
        "/api/v2/jobs",
        "/docs",
        "/redoc",
    ):
        problem(await admin.get(path), 404, "not_found")
    response = await admin.delete(JOBS)
    problem(response, 405, "method_not_allowed")
    assert "GET" in response.headers["allow"] or "POST" in response.headers["allow"]
    problem(await admin.request("PROPFIND", JOBS), 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "empty"),
        (b'{"model": "gpt2",', "line 1 column 18"),
        (json.dumps(SPEC).encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"[" * 10_000 + b"]" * 10_000, "nested deeper than 32"),
        (b'{"model": "gpt2", "model": "gpt3"}', "'model' twice"),
    ],
)
async def test_bodies_that_are_not_json_say_where(admin, problem, body, text):
    for path in (JOBS, "/api/v1/plans", "/api/v1/tokens"):
        answer = problem(await admin.post(path, content=body, headers=JSON), 400, "bad_request")
        assert text in answer["detail"]


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/yaml",
        None,
    ],
)
async def test_other_media_types_are_refused(admin, problem, media_type):
    headers = {} if media_type is None else {"Content-Type": media_type}
    answer = problem(
        await admin.post(JOBS, content=b"{}", headers=headers), 415, "unsupported_media_type"
    )
    assert "application/json" in answer["suggestions"][0]


async def test_compressed_bodies_are_refused(admin, problem):
    response = await admin.post(JOBS, content=b"{}", headers={**JSON, "Content-Encoding": "gzip"})
    problem(response, 415, "unsupported_media_type")


async def test_a_body_over_a_mebibyte_is_refused_before_it_is_read(admin, problem):
    async def endless():
        while True:
            yield b" " * 65_536

    for content in (b" " * (1024**2 + 1), endless()):
        response = await admin.post(JOBS, content=content, headers=JSON)
        assert "1048576" in problem(response, 413, "payload_too_large")["detail"]
        assert response.headers["connection"] == "close"


async def test_an_unexpected_error_tells_nothing_of_the_inside(gateway, admin, problem, caplog):
    async def broken(*_args, **_kwargs):
        raise RuntimeError("password=hunter2")

    gateway.store.cluster = broken
    response = await admin.get("/api/v1/nodes")
    problem(response, 500, "internal")
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_every_answer_has_security_headers(gateway):
    async with gateway.anonymous() as client:
        for path in ("/healthz", "/nope", JOBS, "/openapi.json"):
            headers = (await client.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x",
        "00-0-0-0",
        "ff-" + "0" * 32 + "-" + "0" * 16 + "-00",
        "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
    ],
)
async def test_a_wrong_traceparent_starts_a_new_trace(admin, header):
    response = await admin.get("/nope", headers={"traceparent": header})
    trace_id = response.json()["trace_id"]
    assert len(trace_id) == 32
    assert set(trace_id) != {"0"}


async def test_a_problem_carries_the_callers_trace(gateway, admin):
    response = await admin.get(
        "/nope", headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    )
    assert response.json()["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


async def test_one_span_per_request_named_by_route(gateway, admin, job):
    gateway.spans.clear()
    await admin.get(f"{JOBS}/{job}")
    await admin.get("/nope")
    found = [
        (span.name, span.attributes["http.response.status_code"])
        for span in gateway.spans.get_finished_spans()
    ]
    assert found == [("GET /api/v1/jobs/{job}", 200), ("GET unmatched", 404)]


async def test_metrics_count_by_route_and_never_by_id(gateway, admin, job):
    await admin.get(f"{JOBS}/{job}")
    await admin.get(f"{JOBS}/nosuchjob")
    await admin.get("/some/random/path")
    await admin.request("BREW", JOBS)
    text = (await admin.get("/metrics")).text
    assert (
        'frenzy_http_requests_total{method="GET",route="/api/v1/jobs/{job}",status="200"} 1.0'
        in text
    )
    assert (
        'frenzy_http_requests_total{method="GET",route="/api/v1/jobs/{job}",status="404"} 1.0'
        in text
    )
    assert 'route="unmatched"' in text
    assert 'method="other"' in text
    assert (
        'frenzy_http_response_start_seconds_bucket{le="0.005",method="GET",route="/api/v1/jobs/{job}"}'
        in text
    )
    for word in (job, "nosuchjob", "random", "BREW"):
        assert word not in text


async def test_metrics_count_jobs_by_state_and_outlast_the_store(gateway, admin, job):
    await gateway.move(job, JobState.QUEUED)
    assert 'frenzy_jobs{state="QUEUED"} 1.0' in (await admin.get("/metrics")).text
    gateway.store.down = True
    response = await admin.get("/metrics")
    assert response.status_code == 200
    assert 'frenzy_jobs{state="QUEUED"}' not in response.text


async def test_readiness_tells_what_is_wrong(gateway, admin):
    async def ready():
        response = await admin.get("/readyz")
        body = response.json()
        return (
            response.status_code,
            body["status"],
            {check["name"] for check in body["checks"] if not check["ok"]},
        )

    assert await ready() == (200, "ready", set())
    gateway.store.pressure = {"outbox_lag": 20_000}
    assert await ready() == (200, "degraded", {"outbox"})
    gateway.store.pressure = {}
    del gateway.broker._streams["FRENZY_LOGS"]
    assert await ready() == (200, "degraded", {"bus"})
    gateway.broker.available = False
    assert await ready() == (200, "degraded", {"bus"})
    gateway.store.down = True
    assert await ready() == (503, "unavailable", {"bus", "store"})
    gateway.store.down = False
    gateway.service.stopping.set()
    assert (await ready())[:2] == (503, "stopping")
    assert (await admin.get("/healthz")).status_code == 200


async def test_version_and_schema_are_served(admin):
    assert (await admin.get("/api/v1/version")).json()["api"] == "v1"
    schema = (await admin.get("/schemas/job.json")).json()
    assert schema["title"] == "JobSpec"
    assert "global_batch_size" in schema["required"]


async def test_the_contract_is_the_one_that_is_published(gateway):
    """Run with FRENZY_UPDATE_GOLDEN=1 after an intended change of the API."""
    async with gateway.anonymous() as client:
        served = (await client.get("/openapi.json")).json()
    text = json.dumps(served, indent=1, sort_keys=True) + "\n"
    if os.environ.get("FRENZY_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text, "the API differs from docs/reference/openapi.json"


async def test_the_contract_is_complete(gateway):
    async with gateway.anonymous() as client:
        document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    names = set(document["components"]["schemas"])
    referenced = set()

    def walk(value):
        if isinstance(value, dict):
            if str(value.get("$ref", "")).startswith("#/components/schemas/"):
                referenced.add(value["$ref"].rsplit("/", 1)[1])
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(document)
    assert referenced <= names
    assert {"JobSpec", "JobView", "Problem", "TokenRequest"} <= referenced
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for path, item in document["paths"].items():
        for operation in item.values():
            assert bool(operation["security"]) == path.startswith("/api/")
            assert operation["description"]


def test_the_gateway_starts_without_torch():
    code = "import sys, frenzy_gateway.app; print([m for m in ('torch','deepspeed','transformers','numpy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("query", "says"),
    [("dry_run=true", "known:"), ("validate_onli=true", "did you mean 'validate_only'?")],
)
async def test_an_unknown_query_parameter_is_refused(admin, problem, query, says):
    body = problem(await admin.post(f"/api/v1/jobs?{query}", json=SPEC), 400, "bad_request")
    assert says in body["detail"]


@pytest.mark.parametrize("last", ["1" * 5000, "1" * 19, "9" * 20])
@pytest.mark.parametrize("stream", ["events", "logs"])
async def test_an_impossible_last_event_id_is_refused(admin, problem, stream, last):
    job = (await admin.post("/api/v1/jobs", json=SPEC)).json()["id"]
    text = last if stream == "events" else f"{last}-{last}"
    headers = {"Accept": "text/event-stream", "Last-Event-ID": text}
    problem(await admin.get(f"/api/v1/jobs/{job}/{stream}", headers=headers), 400, "bad_request")
