"""Both clients against one scripted API: the same calls, the same results."""

import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile

import httpx
import pytest
from tests.support.api import (
    NOW,
    SPEC,
    ScriptedApi,
    data,
    job_view,
    node_list,
    ok,
    plan,
    plans,
    problem,
    sse,
)

from frenzy import AsyncClient, Client
from frenzy.errors import InvalidSpec, InvalidState, NotFound, Unreachable
from frenzy.exchange import Retry
from frenzy.streams import LogEntry, LogGap
from frenzy_marp.core.learning import Experience
from frenzy_marp.estimates import estimate_view
from frenzy_shared.messages.estimate import EstimateRequest
from frenzy_shared.messages.http import JobList, QueueView, SeriesView, Timeline, TimelineEntry
from frenzy_shared.messages.spec import parse_spec

FAST = Retry(attempts=3, base_s=0.0, cap_s=0.0)


class Blocking:
    """Calls the blocking client."""

    def __init__(self, api):
        self.client = Client(
            "http://frenzy.test", "frz_t", retry=FAST, transport=httpx.MockTransport(api)
        )

    def call(self, use):
        return use(self.client)

    def items(self, use):
        return list(use(self.client))

    def on_job(self, name, *arguments, **options):
        return getattr(self.client.job("job1"), name)(*arguments, **options)

    def job_items(self, name, **options):
        return list(getattr(self.client.job("job1"), name)(**options))


class Awaiting:
    """Calls the asynchronous client from a loop of its own, so that tests read the same."""

    def __init__(self, api):
        self.api = api

    def call(self, use):
        return self._run(lambda client: use(client))

    def items(self, use):
        async def collect(client):
            return [item async for item in use(client)]

        return self._run(collect)

    def on_job(self, name, *arguments, **options):
        async def act(client):
            return await getattr(await client.job("job1"), name)(*arguments, **options)

        return self._run(act)

    def job_items(self, name, **options):
        async def collect(client):
            found = getattr(await client.job("job1"), name)(**options)
            return [item async for item in found]

        return self._run(collect)

    def _run(self, use):
        async def main():
            transport = httpx.MockTransport(self.api.asynchronous)
            async with AsyncClient(
                "http://frenzy.test", "frz_t", retry=FAST, transport=transport
            ) as client:
                return await use(client)

        return asyncio.run(main())


@pytest.fixture
def api():
    return ScriptedApi().on("GET", "/jobs/job1", ok(job_view()))


@pytest.fixture(params=[Blocking, Awaiting])
def sdk(request, api):
    return request.param(api)


def test_submit_sends_the_token_and_one_key_for_all_tries(sdk, api):
    lost = httpx.ReadError("cut")
    busy = problem(503, "unavailable", "busy")
    api.on("POST", "/jobs", lost, busy, ok(job_view(), 201))
    job = sdk.call(lambda client: client.submit(SPEC, project="vision"))
    assert job.id == "job1"
    sent = api.sent("POST", "/jobs")
    assert len(sent) == 3
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    assert sent[0].headers["authorization"] == "Bearer frz_t"
    assert sent[0].url.params["project"] == "vision"
    assert sent[0].url.params["force_queue"] == "false"


def test_the_callers_key_is_used(sdk, api):
    api.on("POST", "/jobs", ok(job_view()))
    sdk.call(lambda client: client.submit(SPEC, idempotency_key="mine"))
    assert api.sent("POST", "/jobs")[0].headers["idempotency-key"] == "mine"


def test_local_data_is_sent_once_under_its_digest(sdk, api, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("some text\n" * 1000)
    api.on("POST", "/jobs", ok(job_view(), 201))
    stored = {}
    inner = api.__call__

    class Storing(type(api)):
        def __call__(self, request):
            path = request.url.path
            if "/blobs/" in path:
                digest = path.rpartition("/")[2]
                if request.method == "PUT":
                    stored[digest] = request.content
                return httpx.Response(200 if digest in stored else 404)
            return inner(request)

    storing = Storing()
    storing.requests, storing._answers = api.requests, api._answers
    again = type(sdk)(storing)
    spec = {**SPEC, "data": str(tmp_path / "text")}
    again.call(lambda client: client.submit(spec))
    ((digest, content),) = stored.items()
    assert digest == "sha256:" + hashlib.sha256(content).hexdigest()
    assert f"blob:{digest}" in api.sent("POST", "/jobs")[0].content.decode()
    stored[digest] = b"kept"
    again.call(lambda client: client.submit(spec))
    assert stored == {digest: b"kept"}  # not sent again, and packing is deterministic


@pytest.mark.parametrize("make", ["empty file", "empty folder", "link"])
def test_data_that_cannot_be_packed_names_the_field(sdk, api, tmp_path, make):
    path = tmp_path / "data"
    if make == "empty file":
        path.write_text("")
    elif make == "empty folder":
        path.mkdir()
    else:
        path.mkdir()
        (path / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidSpec, match="^data: ") as caught:
        sdk.call(lambda client: client.submit({**SPEC, "data": str(path)}))
    assert caught.value.problems[0].pointer == "/data"
    assert api.requests == []


def test_nothing_is_left_in_the_temporary_folder(sdk, api, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with pytest.raises(NotFound):
        sdk.call(lambda client: client.submit({**SPEC, "data": str(tmp_path / "a.txt")}))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_plan_sends_no_files(sdk, api, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    api.on("POST", "/plans", ok(plans(plan())))
    found = sdk.call(lambda client: client.plan({**SPEC, "data": str(tmp_path / "a.txt")}))
    assert found.plans[0].kind == "emulated-a100-40"
    assert [request.url.path for request in api.requests] == ["/api/v1/plans"]


ESTIMATE = estimate_view(
    EstimateRequest(spec=parse_spec({**SPEC, "data": "node:/x"})), (), Experience()
)


def test_an_estimate_of_a_model_is_one_gpu_with_one_sequence_unless_changed(sdk, api):
    api.on("POST", "/estimates", ok(ESTIMATE))
    found = sdk.call(lambda client: client.estimate("gpt2", gpu="A100", gpus=2, zero_stage=3))
    assert found == ESTIMATE
    body = json.loads(api.requests[0].content)
    assert body["spec"]["model"] == "gpt2"
    assert body["gpu"] == "A100"
    assert body["overrides"] == {"gpus": 2, "zero_stage": 3, "gradient_accumulation_steps": 1}


def test_an_estimate_of_a_job_keeps_its_batch(sdk, api, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    api.on("POST", "/estimates", ok(ESTIMATE))
    sdk.call(lambda client: client.estimate({**SPEC, "data": str(tmp_path / "a.txt")}))
    body = json.loads(api.requests[0].content)
    assert (body["spec"]["global_batch_size"], body["overrides"]) == (8, {})


def test_a_wrong_override_is_said_before_anything_is_sent(sdk, api):
    with pytest.raises(InvalidSpec, match="did you mean 'zero_stage'"):
        sdk.call(lambda client: client.estimate("gpt2", zero_stag=3))
    assert api.requests == []


def test_pages_are_hidden(sdk, api):
    pages = (
        JobList(jobs=(job_view("a"), job_view("b")), next_page_token="next"),
        JobList(jobs=(job_view("c"),)),
    )
    api.on("GET", "/jobs", *(ok(page) for page in pages))
    found = sdk.items(lambda client: client.jobs(states=["RUNNING"], labels={"team": "x"}))
    assert [job.id for job in found] == ["a", "b", "c"]
    first, second = api.sent("GET", "/jobs")
    assert first.url.params["state"] == "RUNNING"
    assert first.url.params["label.team"] == "x"
    assert second.url.params["page_token"] == "next"


def test_wait(sdk, api):
    api.on("GET", "/jobs/job1", ok(job_view()), ok(job_view(state="SUCCEEDED")))
    assert sdk.on_job("wait").state == "SUCCEEDED"


def test_cancel_after_the_end_is_a_typed_error(sdk, api):
    api.on("POST", "/jobs/job1:cancel", problem(409, "invalid_state", "already SUCCEEDED"))
    with pytest.raises(InvalidState, match="already SUCCEEDED"):
        sdk.on_job("cancel")


def test_parts_of_a_job(sdk, api):
    entry = TimelineEntry(time=NOW, version=1, state="SUBMITTED")
    api.on("GET", "/jobs/job1/timeline", ok(Timeline(entries=(entry,))))
    api.on("GET", "/jobs/job1/metrics", ok(SeriesView(points=({"step": 1},))))
    api.on("GET", "/jobs/job1/spec", data(SPEC))
    api.on("GET", "/jobs/job1/plans", ok(plans(plan())))
    api.on("GET", "/nodes", ok(node_list()))
    assert sdk.on_job("timeline") == (entry,)
    assert sdk.on_job("metrics") == ({"step": 1},)
    assert sdk.on_job("spec") == SPEC
    assert sdk.on_job("plans").plans[0].id == "p1"
    assert sdk.call(lambda client: client.nodes())[0].id == "node-b"


def test_a_job_id_stays_one_segment_of_the_path(sdk, api):
    with pytest.raises(NotFound):
        sdk.call(lambda client: client.job("../nodes?x"))
    assert api.requests[-1].url.raw_path == b"/api/v1/jobs/..%2Fnodes%3Fx"


def log(number, text="line"):
    value = {"attempt": 1, "rank": 0, "number": number, "output": "stdout"}
    return ("log", str(number), {**value, "text": text, "time": "t"})


def test_following_a_log_resumes_where_it_broke(sdk, api):
    api.on(
        "GET",
        "/jobs/job1/logs",
        sse(log(1, "a\u2028b"), log(2)),
        httpx.ReadError("cut"),
        problem(503, "unavailable", "restarting"),
        sse(("gap", "3", {"first": 3, "last": 4}), log(5), end="SUCCEEDED"),
    )
    entries = sdk.job_items("log_entries", rank=0)
    assert [e.number for e in entries if isinstance(e, LogEntry)] == [1, 2, 5]
    assert entries[0].text == "a\u2028b"
    assert isinstance(entries[2], LogGap)
    resumed = [
        request.headers.get("last-event-id") for request in api.sent("GET", "/jobs/job1/logs")
    ]
    assert resumed == [None, "2", "2", "2"]


def test_the_log_so_far_is_text(sdk, api):
    api.on("GET", "/jobs/job1/logs", httpx.Response(200, content="one\u2028still\ntwo\n".encode()))
    assert sdk.job_items("logs", tail=2) == ["one\u2028still", "two"]
    assert api.requests[-1].headers["accept"] == "text/plain"
    assert api.requests[-1].url.params["tail"] == "2"


def test_events_come_as_cloud_events(sdk, api):
    event = {
        "specversion": "1.0",
        "id": "job:job1:1:0",
        "source": "/frenzy/default",
        "type": "dev.frenzy.job.submitted.v1",
        "subject": "job:job1",
        "time": "2026-01-01T00:00:00Z",
        "data": {},
        "newer": True,
    }
    api.on("GET", "/jobs/job1/events", sse(("event", "4", event), end="SUCCEEDED"))
    assert [found.id for found in sdk.job_items("events")] == ["job:job1:1:0"]
    api.on("GET", "/jobs/job1/events", data([event]))
    assert [found.id for found in sdk.job_items("events", follow=False)] == ["job:job1:1:0"]


def test_an_unreachable_server_is_one_clear_error(sdk, api):
    api.on("GET", "/nodes", httpx.ConnectError("connection refused"))
    with pytest.raises(Unreachable, match="http://frenzy.test: connection refused"):
        sdk.call(lambda client: client.nodes())
    assert len(api.sent("GET", "/nodes")) == FAST.attempts


def test_importing_frenzy_imports_nothing_heavy():
    code = "import sys, frenzy; print([m for m in sys.modules if '.' not in m])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for heavy in (
        "pydantic",
        "httpx",
        "rich",
        "typer",
        "yaml",
        "torch",
        "nats",
        "redis",
        "fastapi",
    ):
        assert f"'{heavy}'" not in loaded


def test_the_client_needs_only_the_base_install():
    code = "import sys, frenzy.client; print([m.partition('.')[0] for m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for name in (
        "pydantic_settings",
        "nats",
        "redis",
        "fastapi",
        "torch",
        "numpy",
        "opentelemetry",
    ):
        assert f"'{name}'" not in loaded


def test_the_queue_and_recordings_are_asked_for(sdk, api):
    api.on("GET", "/queue", ok(QueueView(policy="has", total=0, entries=())))
    assert sdk.call(lambda client: client.queue(project="vision", limit=7)).policy == "has"
    assert dict(api.sent("GET", "/queue")[0].url.params) == {"limit": "7", "project": "vision"}
    api.on("POST", "/admin/record", httpx.Response(200, content=b"{}"))
    assert sdk.call(lambda client: client.record(cycles=3)) == b"{}"
    assert dict(api.sent("POST", "/admin/record")[0].url.params) == {"cycles": "3"}
