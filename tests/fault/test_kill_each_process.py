"""kill -9 one of each kind of process while jobs train: nothing is lost, doubled or changed."""

import contextlib
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from tests.support.installation import installation

__all__ = ["installation"]

EMULATED = "node-a:emulated-a100-40:1:256MiB:1.0;node-b:emulated-a100-40:1:256MiB:1.0"
STEPS = 240  # long enough for six kills on a fast machine
KINDS = ("gateway", "marp", "scheduler", "agent-node-a", "nats", "valkey")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_job_succeeds_once_whatever_is_killed(installation):
    home = installation
    home.run("up", "--port", "0", "--emulated", EMULATED)
    try:
        undisturbed = finished(home, submit(home, "undisturbed"))
        job = submit(home, "disturbed")
        until(lambda: (state(home, job).get("last_step") or 0) >= 1, "the first step", 120)
        ranks = rank_pids(home, job)
        with ThreadPoolExecutor(1) as watcher:
            watched = watcher.submit(most_live_attempts, home, job)
            for name in KINDS:
                kill_and_wait(home, name)
                assert rank_pids(home, job) == ranks, f"killing {name} touched the ranks"
            disturbed = finished(home, job)
            late = finished(home, submit(home, "afterwards"))
        assert watched.result() == 1
    except AssertionError:
        print(home.logs())
        raise
    for record in (undisturbed, disturbed, late):
        assert record["state"] == "SUCCEEDED"
        assert record["attempt"] == 1
        assert record["retries"] == 0
    assert disturbed["ranks"][0]["loss_last"] == undisturbed["ranks"][0]["loss_last"]
    assert disturbed["last_step"] == STEPS
    versions = [event["id"].split(":")[1:] for event in home.json("events", job)]
    numbers = sorted({int(version) for version, _ in versions})
    assert numbers == list(range(1, disturbed["version"] + 1))
    assert len({tuple(v) for v in versions}) == len(versions)
    assert log_numbers(home, job) == list(range(1, len(log_numbers(home, job)) + 1))


def submit(home, name):
    folder = home.home / "text"
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 800)
    path = home.home / f"{name}.yaml"
    spec = {
        "name": name,
        "model": "gpt2-tiny",
        "data": str(folder),
        "sequence_length": 64,
        "global_batch_size": 8,
        "max_steps": STEPS,
        "learning_rate": 0.001,
        "resources": {"gpus": 2},
    }
    path.write_text(yaml.safe_dump(spec))
    return home.run("submit", "-f", str(path), "-y", "-d", "-o", "name").stdout.strip()


def state(home, job):
    """Read the job; a server that is just being restarted is asked again."""
    deadline = time.monotonic() + 60
    while True:
        result = home.attempt("get", job, "-o", "json")
        if result.returncode == 0:
            return json.loads(result.stdout)
        assert time.monotonic() < deadline, result.stderr
        time.sleep(0.5)


def finished(home, job):
    until(lambda: state(home, job)["state"] in {"SUCCEEDED", "FAILED", "CANCELLED"}, "its end", 240)
    return state(home, job)


def children(home):
    status = json.loads((home.root / "status.json").read_text())
    return {child["name"]: child for child in status["children"]}


def kill_and_wait(home, name):
    before = children(home)[name]
    os.kill(before["mark"]["pid"], signal.SIGKILL)
    until(lambda: children(home)[name]["restarts"] > before["restarts"], f"a new {name}", 60)
    until(lambda: answers(home), f"answers after killing {name}", 60)


def answers(home):
    return home.attempt("nodes", "-o", "json").returncode == 0


def attempt_folders(home, job):
    return sorted((home.root / "nodes").glob(f"*/attempts/{job}.*"))


def rank_pids(home, job):
    pids = {}
    for folder in attempt_folders(home, job):
        run = json.loads((folder / "run.json").read_text())
        pids[folder.name, folder.parent.parent.name] = run["shim"]
        assert alive(run["shim"])
    return pids


def most_live_attempts(home, job):
    """Return the largest number of attempts that ever had a living shim on one node."""
    most = 0
    while state(home, job)["state"] not in {"SUCCEEDED", "FAILED", "CANCELLED"}:
        for node in (home.root / "nodes").iterdir():
            live = [f for f in node.glob(f"attempts/{job}.*") if shim_alive(f)]
            most = max(most, len(live))
        time.sleep(0.2)
    return most


def shim_alive(folder):
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return alive(json.loads((folder / "run.json").read_text())["shim"])
    return False


def alive(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rsplit(")", 1)[1].split()[0] not in "ZX"


def log_numbers(home, job):
    """Return the line numbers of rank 0, which count from 1 without a gap."""
    import httpx

    config = (home.home / "config" / "frenzy" / "config.toml").read_text()
    url, token = (config.split(f'{key} = "')[1].split('"')[0] for key in ("url", "token"))
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    numbers = []
    with httpx.stream(
        "GET", f"{url}/api/v1/jobs/{job}/logs?rank=0", headers=headers, timeout=60
    ) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and '"number"' in line:
                numbers.append(json.loads(line[5:])["number"])
            assert not line.startswith("event: gap")
    return numbers


def until(condition, what, within_s):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(0.2)
