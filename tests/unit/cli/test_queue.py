"""What people read about the queue, predicted times and recordings."""

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from tests.support.api import job_view, node_list, ok, plan, plans
from tests.support.questions import a_question
from tests.support.simulation import a_plan, waiting

from frenzy.cli import eta
from frenzy_scheduler.recording import Cycle, write
from frenzy_shared.messages.answers import Basis, Eta, QueueEntry, TimeBand, WouldStart
from frenzy_shared.messages.http import ExplainView, QueueView

NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)


def band(p50_min, p90_min):
    times = [None if m is None else NOW + timedelta(minutes=m) for m in (p50_min, p90_min)]
    return TimeBand(p50=times[0], p90=times[1])


SURE = Basis(futures=16)
SHORT = Basis(futures=1, reaches=NOW + timedelta(hours=3))


@pytest.mark.parametrize(
    ("start", "end", "basis", "words"),
    [
        (
            band(12, 18),
            band(40, 66),
            SURE,
            "starts in ~12 min (p90 18 min), done in ~40 min (p90 66 min)",
        ),
        (None, band(12, 18), SURE, "done in ~12 min (p90 18 min)"),
        (None, band(-1, 1), SURE, "done any moment (p90 60 s)"),
        (
            band(12, None),
            band(None, None),
            SHORT,
            "starts in ~12 min (p90 > 3.0 h), done later than 3.0 h",
        ),
        (
            band(12, None),
            band(None, None),
            SURE,
            "starts in ~12 min (p90 ?), done later than predicted",
        ),
    ],
)
def test_times_in_words(start, end, basis, words):
    assert eta.sentence(Eta(start=start, end=end), basis, NOW) == words


def test_what_they_rest_on():
    assert eta.foundation(SURE) == "times are predicted from 16 possible futures of the queue"
    assert eta.foundation(SHORT) == (
        "times are predicted from one possible future of the queue; "
        "some were computed only until 2026-12-01 13:00 UTC"
    )


def soon(minutes):
    return datetime.now(UTC) + timedelta(minutes=minutes, seconds=10)


def queue_view(total=1):
    times = TimeBand(p50=soon(12), p90=soon(18))
    entry = QueueEntry(
        position=2,
        job="j1",
        name="train",
        project="default",
        priority=50,
        reason="WaitingForCapacity",
        message="needs 2 x a100; 1 is free",
        submitted_at=NOW,
        eta=Eta(start=times, end=times),
    )
    return QueueView(policy="has", total=total, entries=(entry,), basis=SURE)


def test_the_queue_as_a_table_and_for_programs(cli):
    cli.api.on("GET", "/queue", ok(queue_view(total=5)))
    found = cli("queue", "--project", "p", "--limit", "1")
    assert found.out.splitlines()[1].split()[:5] == ["2", "j1", "train", "50", "WaitingForCapacity"]
    assert "~12 min (p90 18 min)" in found.out
    assert found.err == (
        "5 waiting under policy has; the first 1 are shown; "
        "times are predicted from 16 possible futures of the queue\n"
    )
    assert dict(cli.api.requests[-1].url.params) == {"limit": "1", "project": "p"}
    assert "needs 2 x a100" in cli("queue", "-o", "wide").out
    assert json.loads(cli("queue", "-o", "json").out)["entries"][0]["job"] == "j1"
    assert cli("queue", "-q").out == "j1\n"


def test_an_empty_queue_and_a_watch_that_is_no_table(cli):
    cli.api.on("GET", "/queue", ok(QueueView(policy="has", total=0, entries=(), basis=SURE)))
    found = cli("queue")
    assert (found.code, found.out, found.err) == (0, "", "nobody waits\n")
    assert cli("queue", "-w", "-o", "json").code == 2


def test_watching_ends_with_ctrl_c(cli, monkeypatch):
    cli.api.on("GET", "/queue", ok(queue_view()))

    def interrupted(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("frenzy.cli.commands.queue.time.sleep", interrupted)
    found = cli("queue", "-w")
    assert found.code == 130
    assert "WaitingForCapacity" in found.out


def test_explain_lists_what_would_start_the_job(cli):
    times = TimeBand(p50=soon(12), p90=soon(18))
    why = ExplainView(
        job="job1",
        state="QUEUED",
        reason="WaitingForCapacity",
        message="plan p1 needs 2 x a100; 0 of 2 are idle",
        nearest="plan p1 needs 2 x a100; 0 of 2 are idle",
        position=3,
        source="scheduler",
        would_start=(
            WouldStart(what="pin", text="would start now with 1 GPU instead of 2", plan="p"),
        ),
        eta=Eta(start=times, end=times),
        basis=SURE,
    )
    cli.api.on("GET", "/jobs/job1", ok(job_view()))
    cli.api.on("GET", "/jobs/job1/explain", ok(why))
    cli.api.on("GET", "/jobs/job1/plans", ok(plans(plan())))
    cli.api.on("GET", "/nodes", ok(node_list()))
    lines = cli("explain", "job1").out.splitlines()
    assert lines[1:6] == [
        "WaitingForCapacity: plan p1 needs 2 x a100; 0 of 2 are idle",
        "position in the queue: 3",
        "starts in ~12 min (p90 18 min), done in ~12 min (p90 18 min)",
        "- would start now with 1 GPU instead of 2",
        "(times are predicted from 16 possible futures of the queue)",
    ]
    assert "starts in ~12 min" in cli("get", "job1").out


def recording(policy="has"):
    one = a_plan("p1", "rtx", 1, 1.0)
    queue = [waiting("first", 1, one, steps=500), waiting("second", 2, one, steps=10)]
    question = a_question({"n": {"rtx": 1}}, queue, policy=policy)
    return json.dumps(write([Cycle.of(question, question.answer())]))


def test_a_recording_is_written_and_replayed(cli, tmp_path):
    file = tmp_path / "cycles.json"
    cli.api.on("POST", "/admin/record", httpx.Response(200, content=recording()))
    assert cli("admin", "record", "--cycles", "3", "-o", str(file)).code == 0
    assert dict(cli.api.requests[-1].url.params) == {"cycles": "3"}
    found = cli("admin", "replay", str(file))
    assert found.code == 0
    assert "place: 1 x rtx on n, plan p1" in found.out
    assert "hold 1: WaitingForCapacity: plan p1 needs 1 x rtx; 0 of 1 are idle" in found.out
    assert found.out.endswith("as it was recorded\n")


def test_another_policy_is_compared_with_what_was_recorded(cli, tmp_path):
    file = tmp_path / "cycles.json"
    file.write_text(recording())
    found = cli("admin", "replay", str(file), "--policy", "srtf")
    assert (found.code, found.out.splitlines()[-1]) == (0, "2 of 2 decisions differ")
    assert "RECORDED UNDER HAS" in found.out
    assert json.loads(cli("admin", "replay", str(file), "-o", "json").out)[0]["differences"] == []


def test_decisions_that_changed_with_the_version_are_an_error(cli, tmp_path):
    file = tmp_path / "cycles.json"
    data = json.loads(recording())
    data["cycles"][0]["decisions"][0] = {"decision": "preempt", "job": "gone"}
    file.write_text(json.dumps(data))
    found = cli("admin", "replay", str(file))
    assert found.code == 1
    assert "gone: left alone; recorded: preempt" in found.out
    assert found.out.endswith("2 of 3 decisions differ\n")
    assert [line.split()[-2:] for line in found.out.splitlines() if " place: " in line] == [
        ["left", "alone"]
    ]


@pytest.mark.parametrize("content", [None, b"", b"\x00\xff", b'{"recording": 7}'])
def test_bad_files_are_errors_without_a_traceback(cli, tmp_path, content):
    file = tmp_path / "cycles.json"
    if content is not None:
        file.write_bytes(content)
    found = cli("admin", "replay", str(file))
    assert found.code == 1
    assert found.err.startswith("error: ")
    assert "Traceback" not in found.err
