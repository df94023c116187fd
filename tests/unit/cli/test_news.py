"""What is said about a job while its log is silent."""

import httpx
import pytest
from tests.support.api import held_devices, job_view, ok

from frenzy import Client
from frenzy.cli import news
from frenzy.cli.news import News, sentence
from frenzy_shared.messages.http import PendingView


def waits(message):
    return job_view(pending=PendingView(reason="WaitingForCapacity", message=message))


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (waits("1 is free"), "job1 QUEUED (WaitingForCapacity) 1 is free"),
        (job_view(reason="Drained", message="again"), "job1 QUEUED (Drained) again"),
        (job_view(state="STARTING", **held_devices()), "on node-b: starting its ranks"),
        (job_view(state="RUNNING", **held_devices()), "loading the model takes some seconds"),
        (job_view(state="SUBMITTED"), "job1 SUBMITTED"),
    ],
)
def test_a_state_in_one_line(view, says):
    assert says in sentence(view)


def test_an_outcome_is_told_elsewhere_and_a_training_job_does_not_load():
    assert sentence(job_view(state="FAILED", reason="UserCodeError")) == ""
    assert "loading" not in sentence(job_view(state="RUNNING", last_step=1, **held_devices()))


def test_each_change_is_said_once_and_a_server_that_is_away_is_no_news(cli, monkeypatch, capsys):
    monkeypatch.setattr(news, "_POLL_S", 0.0)
    away = httpx.Response(503, content=b"")
    views = [waits("1 is free"), waits("1 is free"), waits("2 are free")]
    running = job_view(state="RUNNING", **held_devices())
    answers = [*map(ok, views), away, away, ok(running), ok(running), ok(job_view(state="FAILED"))]
    cli.api.on("GET", "/jobs/job1", *answers)
    with Client() as client:
        job = client.job("job1")
        with News(job) as watched:
            watched._thread.join(5)
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said] == ["QUEUED", "QUEUED", "RUNNING"]
    assert "2 are free" in said[1]
