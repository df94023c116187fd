"""A real job in training is stopped for another one, moves, and ends as if nothing had happened."""

import os
import signal

import pytest
from tests.support.installation import installation, until
from tests.support.moving import OVER, pid_of, submit, system, view

__all__ = ["installation"]

EMULATED = (
    "node-a:emulated-a100-80:1:512MiB:1.0;"
    "node-b:emulated-rtx2080ti:1:256MiB:0.8;"
    "node-c:emulated-a100-40:1:256MiB:1.0"
)


def makes_way(job):
    """Tell whether it stops, or has stopped: a fast machine saves within a look."""
    return job["state"] == "STOPPING" or job["attempt"] == 2


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_makes_way_moves_and_learns_the_same(installation):
    """The scheduler is killed while the job saves; a job that must not be stopped runs beside."""
    home = installation
    with system(home, EMULATED) as api:
        more = {"max_steps": 300}  # much longer than a start, else nobody makes way for one
        moved = submit(home, "moved", kinds=["emulated-a100-80", "emulated-rtx2080ti"], **more)
        alone = submit(home, "alone", kinds=["emulated-a100-40"], preemptible=False, **more)
        until(lambda: view(api, moved).get("last_step"), "it trains")
        assert view(api, moved)["kind"] == "emulated-a100-80"
        urgent = submit(home, "urgent", kinds=["emulated-a100-80"], max_steps=2)
        until(lambda: makes_way(view(api, moved)), "it makes way")
        os.kill(pid_of(home, "scheduler"), signal.SIGKILL)
        for job in (urgent, moved, alone):
            until(lambda job=job: view(api, job)["state"] in OVER, "its end", 120)
        stopped, ended, reference = view(api, urgent), view(api, moved), view(api, alone)
        stops = [event for event in home.json("events", moved) if ".preempted." in event["type"]]
        said = home.run("logs", moved, "--attempt", "2").stdout
    assert {end["state"] for end in (stopped, ended, reference)} == {"SUCCEEDED"}
    assert (reference["attempt"], reference["preemptions"]) == (1, 0)
    assert (ended["attempt"], ended["preemptions"], ended["retries"]) == (2, 1, 0)
    assert ended["plan"]["kind"] == "emulated-rtx2080ti"
    assert ended["last_loss"] == pytest.approx(reference["last_loss"], abs=5e-3)
    assert "resumed from step" in said
    assert [event["data"]["for"] for event in stops] == [[urgent]]
    assert "instead of 1 x emulated-a100-80" in stops[0]["data"]["message"]
