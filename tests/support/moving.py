"""Jobs of the built-in trainer on a whole local system, for tests in which they change devices."""

import json
import random
import tomllib
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import httpx
import yaml

OVER = {"SUCCEEDED", "FAILED", "CANCELLED"}


@contextmanager
def system(home, emulated, **settings):
    """Run `frenzy up` with emulated devices; yield the API; show the logs of a failure."""
    settings = {"FRENZY_POLICY": "frenzy", "FRENZY_MIN_RUN_FACTOR": "0", **settings}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    home.run("up", "--port", "0", "--emulated", emulated, *sets)
    try:
        with connect(home) as api:
            yield api
    except BaseException:
        print(home.logs())
        raise
    finally:
        home.run("down")


def connect(home):
    config = tomllib.loads((home.home / "config" / "frenzy" / "config.toml").read_text())
    headers = {"Authorization": f"Bearer {config['token']}"}
    return httpx.Client(base_url=config["url"] + "/api/v1", headers=headers)


def view(api, job):
    return api.get(f"/jobs/{job}").json()


def pid_of(home, service):
    children = json.loads((home.root / "status.json").read_text())["children"]
    return next(child["mark"]["pid"] for child in children if child["name"] == service)


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


class Step(NamedTuple):
    """One step that a rank 0 reported."""

    attempt: int
    step: int
    time_ms: int
    loss: float


def steps(home, job):
    """Return every step of a job, from the nodes' files."""
    found = []
    for path in home.root.glob(f"nodes/*/attempts/{job}.*/ranks/0/report.jsonl"):
        attempt = int(path.parents[2].name.rpartition(".")[2])
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "step":
                found.append(Step(attempt, entry["step"], entry["time_ms"], entry["loss"]))
    return sorted(found)


def gaps(home, job):
    """Return the seconds from the last step of each attempt to the first one of the next."""
    by_attempt = {}
    for step in steps(home, job):
        by_attempt.setdefault(step.attempt, []).append(step.time_ms)
    times = [by_attempt[attempt] for attempt in sorted(by_attempt)]
    return [(after[0] - before[-1]) / 1000 for before, after in pairwise(times)]
