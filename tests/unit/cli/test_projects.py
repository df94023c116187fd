"""``frenzy project | quota | hold | release`` against a scripted server."""

import json

from tests.support.api import job_view, ok, problem

from frenzy_shared.messages.projects import (
    DeviceQuotaBody,
    KindUse,
    ProjectList,
    ProjectSettings,
    ProjectView,
)

VISION = ProjectView(
    name="vision",
    settings=ProjectSettings(
        weight=2.0,
        devices=DeviceQuotaBody(limit=64),
        kinds={"T4": DeviceQuotaBody(nominal=4, limit=8)},
        max_running_jobs=10,
    ),
    running_jobs=2,
    waiting_jobs=1,
    uses=(KindUse(kind="T4", used=6, borrowed=2),),
)


def put(cli):
    """Return the body of the only change that was sent."""
    (request,) = cli.api.sent("PUT", "/projects/vision")
    return json.loads(request.content)


def server(cli, answer=VISION):
    cli.api.on("GET", "/projects/vision", ok(VISION)).on("PUT", "/projects/vision", ok(answer))
    return cli


def test_projects_are_listed_with_what_they_use(cli):
    cli.api.on("GET", "/projects", ok(ProjectList(projects=(VISION,))))
    lines = cli("project").out.splitlines()
    assert lines[1].split() == ["vision", "2", "2", "1", "6", "2"]
    assert cli("project", "-q").out == "vision\n"


def test_a_weight_is_set_and_the_quotas_stay(cli):
    assert server(cli)("project", "vision", "--weight", "3").code == 0
    assert put(cli) == {
        "weight": 3.0,
        "devices": {"limit": 64},
        "kinds": {"T4": {"nominal": 4, "limit": 8}},
        "max_running_jobs": 10,
    }


def test_quota_shows_use_beside_limits(cli):
    out = server(cli)("quota", "vision").out
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["PROJECT", "OF", "USED", "OWN", "BORROWED", "LIMIT"]
    assert rows[1] == ["vision", "T4", "6", "4", "2", "8"]
    assert rows[2] == ["vision", "all", "GPUs", "6", "-", "-", "64"]
    assert rows[3] == ["vision", "running", "jobs", "2", "-", "-", "10"]
    assert not cli.api.sent("PUT", "/projects/vision")


def test_quotas_change_one_by_one_and_notes_are_said(cli):
    noted = VISION.model_copy(update={"notes": ("it uses 6 x T4, more than the limit of 2",)})
    result = server(cli, noted)(
        "quota", "vision", "--limit", "T4=2", "--limit", "all=none", "--nominal", "A100 40GB=1",
        "--nominal", "T4=none", "--max-running-jobs", "none", "--max-unfinished-jobs", "50",
    )  # fmt: skip
    assert put(cli) == {
        "weight": 2.0,
        "devices": {},
        "kinds": {"T4": {"limit": 2}, "A100 40GB": {"nominal": 1}},
        "max_unfinished_jobs": 50,
    }
    assert "vision: it uses 6 x T4, more than the limit of 2" in result.err
    assert cli("quota", "vision").err == ""  # whoever only looks has read it before
    assert cli("project", "vision").err == ""


def test_clear_takes_everything_away_but_the_weight(cli):
    server(cli)("quota", "vision", "--clear", "--limit", "all=1")
    assert put(cli) == {"weight": 2.0, "devices": {"limit": 1}, "kinds": {}}


def test_mistakes_are_told_before_anything_is_sent(cli):
    server(cli)
    for arguments, said in (
        (("quota", "--limit", "all=1"), "name the project"),
        (("project", "--weight", "2"), "name the project"),
        (("quota", "vision", "--limit", "T4"), "'T4' is not KIND=N"),
        (("quota", "vision", "--limit", "T4=-1"), "'-1' is neither a number nor none"),
        (("quota", "vision", "--max-running-jobs", "x"), "--max-running-jobs"),
        (("quota", "vision", "--nominal", "T4=9"), "nominal (9) is above limit (8)"),
        (("quota", "vision", "--limit", "all=1", "--limit", "all=2"), "'all' is given twice"),
        (("quota", "vision", "--nominal", "T4=1", "--nominal", "T4=1"), "'T4' is given twice"),
        (("project", "vision", "--weight", "0"), "weight"),
        (("project", "vision", "--weight", "1e-308"), "weight"),
    ):
        result = cli(*arguments)
        assert result.code in (1, 2), arguments
        assert said in result.err, arguments
    assert not cli.api.sent("PUT", "/projects/vision")


def test_hold_and_release_answer_for_every_job(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="QUEUED")))
    cli.api.on("POST", "/jobs/job1:hold", ok(job_view(state="QUEUED")))
    cli.api.on("POST", "/jobs/job1:release", problem(409, "invalid_state", "job1 is RUNNING"))
    assert cli("hold", "job1").out == "job1 QUEUED\n"
    result = cli("release", "job1")
    assert result.code == 1
    assert "job1 is RUNNING" in result.err
