"""A real job in training is stopped for another one, moves, and ends as if nothing had happened."""

import json
import os
import random
import signal
import tomllib

import httpx
import pytest
import yaml
from tests.support.installation import installation, until

__all__ = ["installation"]

EMULATED = (
    "node-a:emulated-a100-80:1:512MiB:1.0;"
    "node-b:emulated-rtx2080ti:1:256MiB:0.8;"
    "node-c:emulated-a100-40:1:256MiB:1.0"
)
OVER = {"SUCCEEDED", "FAILED", "CANCELLED"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_makes_way_moves_and_learns_the_same(installation):
    """The scheduler is killed while the job saves; a job that must not be stopped runs beside."""
    home = installation
    sets = ("--set", "FRENZY_POLICY=frenzy", "--set", "FRENZY_MIN_RUN_FACTOR=0")
    home.run("up", "--port", "0", "--emulated", EMULATED, *sets)
    try:
        with connect(home) as api:
            moved = submit(home, "moved", kinds=["emulated-a100-80", "emulated-rtx2080ti"])
            alone = submit(home, "alone", kinds=["emulated-a100-40"], preemptible=False)
            until(lambda: view(api, moved).get("last_step"), "it trains")
            assert view(api, moved)["kind"] == "emulated-a100-80"
            urgent = submit(home, "urgent", kinds=["emulated-a100-80"], max_steps=2)
            until(lambda: view(api, moved)["state"] == "STOPPING", "it makes way")
            os.kill(scheduler_of(home), signal.SIGKILL)
            for job in (urgent, moved, alone):
                until(lambda job=job: view(api, job)["state"] in OVER, "its end", 120)
            stopped, ended, reference = view(api, urgent), view(api, moved), view(api, alone)
        stops = [event for event in home.json("events", moved) if ".preempted." in event["type"]]
        said = home.run("logs", moved, "--attempt", "2").stdout
    except BaseException:
        print(home.logs())
        raise
    finally:
        home.run("down")
    assert {end["state"] for end in (stopped, ended, reference)} == {"SUCCEEDED"}
    assert (reference["attempt"], reference["preemptions"]) == (1, 0)
    assert (ended["attempt"], ended["preemptions"], ended["retries"]) == (2, 1, 0)
    assert ended["plan"]["kind"] == "emulated-rtx2080ti"
    assert ended["last_loss"] == pytest.approx(reference["last_loss"], abs=5e-3)
    assert "resumed from step" in said
    assert [event["data"]["for"] for event in stops] == [[urgent]]
    assert "instead of 1 x emulated-a100-80" in stops[0]["data"]["message"]


def connect(home):
    config = tomllib.loads((home.home / "config" / "frenzy" / "config.toml").read_text())
    headers = {"Authorization": f"Bearer {config['token']}"}
    return httpx.Client(base_url=config["url"] + "/api/v1", headers=headers)


def view(api, job):
    return api.get(f"/jobs/{job}").json()


def scheduler_of(home):
    children = json.loads((home.root / "status.json").read_text())["children"]
    return next(child["mark"]["pid"] for child in children if child["name"] == "scheduler")


def submit(home, name, *, kinds, **more):
    text = home.home / "text"
    if not text.exists():
        text.mkdir()
        chance = random.Random(0)
        words = ["".join(chance.choices("abcdefghij", k=4)) for _ in range(300)]
        (text / "a.txt").write_text(" ".join(chance.choices(words, k=8000)))
    spec = {
        "name": name,
        "model": "gpt2-tiny",
        "data": "text",
        "sequence_length": 64,
        "global_batch_size": 4,
        "max_steps": 100,
        "learning_rate": 0.001,
        "resources": {"kinds": kinds},
        **more,
    }
    path = home.home / f"{name}.yaml"
    path.write_text(yaml.safe_dump(spec))
    return home.run("submit", "-f", str(path), "-y", "-d", "-o", "name").stdout.strip()
