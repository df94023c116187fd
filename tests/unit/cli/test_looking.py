"""Commands that look at jobs and nodes, against a scripted server."""

import json

import httpx
import pytest
import yaml
from tests.support.api import (
    NOW,
    data,
    held_devices,
    job_view,
    log,
    node_list,
    ok,
    plan,
    plans,
    problem,
    sse,
)

from frenzy.cli import output
from frenzy_shared.messages.http import (
    SAFE_MODE,
    CheckView,
    ExplainView,
    JobList,
    PendingView,
    QueueView,
    RankView,
    ReadinessView,
    Timeline,
    TimelineEntry,
)


@pytest.fixture
def two_jobs(cli):
    waiting = PendingView(reason="WaitingForCapacity", message="needs 2, 1 is free")
    views = (
        job_view("job2", "QUEUED", pending=waiting),
        job_view(state="RUNNING", last_step=5, last_loss=2.5, **held_devices()),
    )
    cli.api.on("GET", "/jobs", ok(JobList(jobs=views)))
    return cli


def test_list_shows_state_reason_and_place(two_jobs):
    result = two_jobs("list")
    assert result.code == 0
    assert "WaitingForCapacity" in result.out
    assert "1 x emulated-a100-40 on node-b" in result.out
    assert "needs 2, 1 is free" in two_jobs("list", "-o", "wide").out


def test_list_formats(two_jobs):
    assert two_jobs("list", "-q").out == "job2\njob1\n"
    assert two_jobs("list", "-o", "name").out == "job2\njob1\n"
    assert [job["id"] for job in json.loads(two_jobs("list", "-o", "json").out)] == ["job2", "job1"]
    assert yaml.safe_load(two_jobs("list", "-o", "yaml").out)[1]["last_step"] == 5
    assert two_jobs("list", "-q", "--limit", "1").out == "job2\n"


def test_get_shows_a_field_a_line(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="RUNNING", last_step=5, **held_devices())))
    lines = cli("get", "job1").out.splitlines()
    assert lines[0].split() == ["id", "job1"]
    assert "gpus    1 x emulated-a100-40 on node-b" in lines
    assert ["project", "default"] in [
        line.split() for line in cli("get", "job1", "-o", "wide").out.splitlines()
    ]
    assert cli("get", "job1", "-o", "name").out == "job1\n"


def test_list_filters_are_sent(two_jobs):
    two_jobs("list", "--state", "RUNNING", "--state", "QUEUED", "--label", "team=x")
    params = two_jobs.api.sent("GET", "/jobs")[-1].url.params
    assert params.get_list("state") == ["RUNNING", "QUEUED"]
    assert params["label.team"] == "x"
    assert two_jobs("list", "--label", "nonsense").code == 2


def test_no_jobs_is_not_an_error(cli):
    cli.api.on("GET", "/jobs", ok(JobList(jobs=())))
    result = cli("list")
    assert result.code == 0
    assert "frenzy submit" in result.err
    assert cli("list", "-o", "json").out == "[]\n"


def test_a_jobs_name_cannot_write_to_the_terminal(cli):
    cli.api.on("GET", "/jobs", ok(JobList(jobs=(job_view(name="a\x1b[2Jb[red]c"),))))
    out = cli("list").out
    assert "\x1b" not in out
    assert "[red]" in out


def test_describe_tells_the_whole_story(cli):
    rank = RankView(
        rank=0,
        exit_code=0,
        reason="Completed",
        peak_allocated_bytes=100 * 2**20,
        loss_first=5.5,
        loss_last=2.25,
        tokens_per_second=1234.0,
    )
    view = job_view(state="SUCCEEDED", plan=plan(), ranks=(rank,), **held_devices())
    entries = (TimelineEntry(time=NOW, version=1, state="SUBMITTED"),)
    cli.api.on("GET", "/jobs/job1", ok(view))
    cli.api.on("GET", "/jobs/job1/timeline", ok(Timeline(entries=entries)))
    cli.api.on("GET", "/jobs/job1/plans", ok(plans(plan())))
    cli.api.on("GET", "/nodes", ok(node_list()))
    assert "plan p1\n" in cli("describe", "job1").out.replace(" \n", "\n")  # policy not known
    cli.api.on("GET", "/queue", ok(QueueView(policy="has", total=0, entries=())))
    result = cli("describe", "job1")
    assert result.code == 0
    for text in (
        "SUCCEEDED",
        "node-b/0",
        "+0.0 %",
        "above (+) or below (-)",
        "5.500 -> 2.250",
        "1,234",
        "SUBMITTED",
    ):
        assert text in result.out
    assert "on node-b, plan p1: it is the first plan and its GPUs were idle" in result.out
    assert json.loads(cli("describe", "job1", "-o", "json").out)["timeline"][0]["version"] == 1


def test_explain_says_why(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view()))
    why = ExplainView(
        job="job1",
        state="QUEUED",
        reason="CapacityFragmented",
        message="2 free, on two nodes",
        nearest="wait for job7",
        position=3,
        source="scheduler",
    )
    cli.api.on("GET", "/jobs/job1/explain", ok(why))
    cli.api.on("GET", "/jobs/job1/plans", ok(plans(plan())))
    cli.api.on("GET", "/nodes", ok(node_list()))
    out = cli("explain", "job1").out
    for text in ("CapacityFragmented", "2 free, on two nodes", "wait for job7", "queue: 3"):
        assert text in out


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("SUCCEEDED", "Completed", 0),
        ("FAILED", "UserCodeError", 100),
        ("CANCELLED", "ByUser", 103),
        ("FAILED", "NoFeasiblePlan", 104),
    ],
)
def test_wait_exits_with_the_outcome(cli, state, reason, code):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state=state, reason=reason)))
    assert cli("wait", "job1").code == code


def test_wait_for_several_is_the_first_that_did_not_succeed(cli):
    cli.api.on("GET", "/jobs/a", ok(job_view("a", "SUCCEEDED")))
    cli.api.on("GET", "/jobs/b", ok(job_view("b", "CANCELLED")))
    cli.api.on("GET", "/jobs/c", ok(job_view("c", "FAILED")))
    assert cli("wait", "a", "b", "c", "-q").code == 103


def test_wait_that_takes_too_long_is_105(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="RUNNING")))
    result = cli("wait", "job1", "--timeout", "0.01s")
    assert result.code == 105
    assert "job1 is not over" in result.err
    assert cli("wait", "job1", "--timeout", "0.01").code == 105
    wrong = cli("wait", "job1", "--timeout", "soon")
    assert wrong.code == 2
    assert "100 (seconds), 90s" in wrong.err


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (
            problem(404, "not_found", "no job job1", suggestions=["list jobs: GET /api/v1/jobs"]),
            102,
            "error: no job job1\n  try: see the jobs: fr",
        ),
        (problem(401, "unauthenticated", "token expired"), 1, "set FRENZY_TOKEN"),
        (problem(503, "unavailable", "store is down"), 105, "store is down"),
        (httpx.ConnectError("connection refused"), 105, "frenzy up"),
        (httpx.Response(200, content=b"<html>"), 1, "not what this version of Frenzy expects"),
    ],
)
def test_errors_are_one_line_a_hint_and_a_code(cli, answer, code, says):
    cli.api.on("GET", "/jobs/job1", answer)
    result = cli("get", "job1")
    assert result.code == code
    assert says in result.err
    assert "Traceback" not in result.err
    assert result.out == ""


def test_cancel_goes_on_after_a_refusal(cli):
    cli.api.on("GET", "/jobs/a", ok(job_view("a", "SUCCEEDED")))
    cli.api.on("POST", "/jobs/a:cancel", problem(409, "invalid_state", "already SUCCEEDED"))
    cli.api.on("GET", "/jobs/b", ok(job_view("b", "RUNNING")))
    cli.api.on("POST", "/jobs/b:cancel", ok(job_view("b", "STOPPING")))
    result = cli("cancel", "a", "b")
    assert result.code == 1
    assert result.out == "b STOPPING\n"
    assert "already SUCCEEDED" in result.err


def test_logs_so_far_and_followed(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="CANCELLED", reason="ByUser")))
    cli.api.on("GET", "/jobs/job1/logs", httpx.Response(200, content=b"[0] one\n"))
    assert cli("logs", "job1").out == "[0] one\n"
    stream = sse(log(1, "one"), ("gap", "2", {"first": 2, "last": 9}), end="CANCELLED")
    cli.api.on("GET", "/jobs/job1/logs", stream)
    result = cli("logs", "-f", "job1", "--rank", "0")
    assert result.code == 103
    assert result.out == "one\n"
    assert "missing" in result.err


def test_attempts_are_named_once_there_are_several(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="SUCCEEDED")))
    stream = sse(log(1, "one"), log(1, "again", attempt=2), end="SUCCEEDED")
    cli.api.on("GET", "/jobs/job1/logs", stream)
    assert cli("logs", "-f", "job1").out == "[0] one\n[2.0] again\n"
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="SUCCEEDED", attempt=2)))
    assert cli("logs", "-f", "job1").out == "[1.0] one\n[2.0] again\n"
    assert cli("logs", "-f", "job1", "--attempt", "2").out.startswith("[0] one\n")


def test_ctrl_c_lets_go_of_a_followed_log(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="RUNNING")))
    cli.api.on("GET", "/jobs/job1/logs", KeyboardInterrupt())
    result = cli("logs", "-f", "job1")
    assert result.code == 130
    assert "job job1 goes on" in result.err
    assert "frenzy cancel job1" in result.err
    assert not [request for request in cli.api.requests if request.method == "POST"]


def test_events_as_lines(cli):
    event = {
        "specversion": "1.0",
        "id": "job:job1:2:0",
        "source": "/frenzy/default",
        "type": "dev.frenzy.job.planned.v1",
        "subject": "job:job1",
        "time": "2026-01-01T00:00:00Z",
        "data": {"record": {"state": "QUEUED", "reason": ""}},
    }
    cli.api.on("GET", "/jobs/job1", ok(job_view()))
    cli.api.on("GET", "/jobs/job1/events", data([event]))
    assert "planned" in cli("events", "job1").out
    assert json.loads(cli("events", "job1", "-o", "json").out)[0]["id"] == "job:job1:2:0"
    cli.api.on("GET", "/jobs/job1/events", sse(("event", "1", event), end="SUCCEEDED"))
    assert json.loads(cli("events", "-f", "job1", "-o", "json").out)["type"].endswith("planned.v1")


def test_nodes(cli, monkeypatch):
    cli.api.on("GET", "/nodes", ok(node_list()))
    assert cli("nodes").err == ""  # programs know what the names mean
    monkeypatch.setattr(output, "interactive", lambda: True)
    result = cli("nodes")
    assert "1 x emulated-a100-40 (256 MiB)" in result.out
    assert "emulated on the CPU" in result.err
    assert cli("nodes", "-q").err == ""
    assert "127.0.1.2" in cli("nodes", "-o", "wide").out


def test_version_works_without_a_server(cli):
    cli.api.on("GET", "/version", httpx.ConnectError("refused"))
    result = cli("version")
    assert result.code == 0
    assert result.out.startswith("frenzy ")
    assert result.err == "server: none running (frenzy up starts one)\n"
    assert "refused" in cli("version", "--url", "http://elsewhere").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["list", "--nonsense"],
        ["get"],
        ["list", "-o", "xml"],
        ["list", "--state", "FOO"],
        [],
    ],
)
def test_usage_errors_are_2(cli, arguments):
    result = cli(*arguments)
    assert result.code == 2
    assert "Value error" not in result.err


def test_a_mistyped_command_gets_a_suggestion(cli):
    assert "submit" in cli("submitt").err


CLOSED = ReadinessView(
    status="degraded",
    checks=(CheckView(name=SAFE_MODE, ok=False, detail="nothing starts or changes: an old copy"),),
)


@pytest.mark.parametrize("command", ["list", "nodes", "queue"])
def test_a_closed_store_is_said_beside_every_listing(cli, command):
    queue = QueueView(policy="has", total=0, entries=(), safe_mode="an old copy")
    cli.api.on("GET", "/jobs", ok(JobList(jobs=(job_view(),))))
    cli.api.on("GET", "/nodes", ok(node_list())).on("GET", "/queue", ok(queue))
    cli.api.at_root("GET", "/readyz", ok(CLOSED))
    shown = cli(command)
    assert "SAFE MODE: an old copy; nothing starts or changes" in shown.err
    assert "SAFE MODE" not in shown.out
