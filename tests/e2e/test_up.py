"""`frenzy up` as a user has it: one life from the first start to the last stop, and its errors."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
import yaml
from tests.support.installation import installation

__all__ = ["installation"]

EMULATED = "node-a:emulated-small:1:96MiB:1.0;node-b:emulated-large:1:256MiB:1.0"
UP = ("up", "--port", "0", "--emulated", EMULATED)


def status(home):
    return json.loads((home.root / "status.json").read_text())


def pid_of(home, name):
    return next(c["mark"]["pid"] for c in status(home)["children"] if c["name"] == name)


def supervisor_of(home):
    """Return the mark of the supervisor, once it has said who it is."""
    with contextlib.suppress(FileNotFoundError):
        return status(home)["supervisor"]


def until(condition, what, within_s=60.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(0.1)


def write_job(home, name, **more):
    (home.home / "text").mkdir(exist_ok=True)
    (home.home / "text" / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 500)
    spec = {
        "name": name,
        "model": "gpt2-tiny",
        "data": "text",
        "sequence_length": 64,
        "global_batch_size": 4,
        "max_steps": 4,
        "learning_rate": 0.001,
        **more,
    }
    path = home.home / f"{name}.yaml"
    path.write_text(yaml.safe_dump(spec))
    return str(path)


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_life(installation):
    home = installation
    try:
        _starts_and_says_so(home)
        _trains(home)
        _repairs_a_killed_gateway(home)
        job = _leaves_ranks_alone_when_asked(home)
        _goes_down_with_a_job_running(home, job)
        _goes_on_with_it(home, job)
        _survives_a_killed_supervisor(home)
    except AssertionError:
        sys.stderr.write(home.logs())
        raise


def _starts_and_says_so(home):
    first = home.run(*UP, "--set", f"FRENZY_TRACE_FILE={home.home / 'spans.jsonl'}")
    url = first.stdout.strip()
    assert url.startswith("http://127.0.0.1:")
    again = home.run(*UP)
    assert again.stdout.strip() == url
    assert "already runs" in again.stderr
    states = {node["id"]: node["state"] for node in home.json("nodes")}
    assert states == {"node-a": "UP", "node-b": "UP"}
    config = home.home / "config" / "frenzy" / "config.toml"
    for private in (config, home.root / "secrets.json", home.root / "etc" / "nats.conf"):
        assert private.stat().st_mode & 0o077 == 0
    # Both servers run with their durable settings.
    assert "sync_interval: always" in (home.root / "etc" / "nats.conf").read_text()


def _trains(home):
    done = home.run("submit", "-f", write_job(home, "first"), "-y")
    job = done.stdout.splitlines()[0]
    view = home.json("get", job)
    assert view["state"] == "SUCCEEDED"
    assert view["ranks"][0]["peak_allocated_bytes"] > 0
    assert "SUCCEEDED" in home.run("describe", job).stdout
    assert home.run("logs", job).stdout
    spans = [json.loads(line) for line in (home.home / "spans.jsonl").read_text().splitlines()]
    hops = {}
    for span in spans:
        hops.setdefault(span["trace_id"], set()).add(span["service"])
    everyone = {"gateway", "marp", "scheduler", "orchestrator"}
    assert any(everyone <= seen for seen in hops.values()), hops


def _repairs_a_killed_gateway(home):
    before = pid_of(home, "gateway")
    os.kill(before, signal.SIGKILL)
    until(lambda: pid_of(home, "gateway") != before, "a new gateway")
    until(lambda: home.exit_code("nodes") == 0, "the API answers")


def _leaves_ranks_alone_when_asked(home):
    spec = write_job(home, "long", max_steps=3000, checkpoint={"every_steps": 5})
    job = home.run("submit", "-f", spec, "-d", "-y").stdout.strip()
    until(lambda: (home.json("get", job).get("checkpoint_step") or 0) >= 5, "a checkpoint")
    assert "1 attempts go on" in home.run("down", "--keep-jobs").stderr
    left = home.processes()
    assert not [command for command in left.values() if "frenzy_gateway" in command]
    ranks = {pid for pid, command in left.items() if "-m frenzy_trainer" in command}
    assert ranks, left
    home.run(*UP)
    before = home.json("get", job)["last_step"]
    until(lambda: home.json("get", job)["last_step"] > before, "the ranks' reports")
    assert ranks <= set(home.processes())
    assert home.json("get", job)["attempt"] == 1
    return job


def _goes_down_with_a_job_running(home, job):
    home.run("down")
    assert home.nothing_left() == {}
    assert home.run("get", job, code=105).stdout == ""
    assert "nothing was running" in home.run("down").stderr


def _goes_on_with_it(home, job):
    home.run(*UP)
    until(lambda: home.json("get", job)["attempt"] == 2, "the second attempt")
    until(lambda: home.json("get", job)["state"] == "RUNNING", "it runs")
    timeline = home.json("describe", job)["timeline"]
    assert "Drained" in {entry.get("reason") for entry in timeline}
    home.run("cancel", job)
    home.run("wait", job, "--timeout", "60s", code=103)
    assert len(home.json("list")) == 2


def _survives_a_killed_supervisor(home):
    old = {child["name"]: child["mark"]["pid"] for child in status(home)["children"]}
    os.kill(status(home)["supervisor"]["pid"], signal.SIGKILL)
    same_port = ("--port", str(urlsplit(status(home)["url"]).port))  # its gateway still listens
    more = ("--replicas", "gateway=2,marp=2,scheduler=2")
    home.run("up", *same_port, "--emulated", EMULATED, *more)
    new = {child["name"]: child["mark"]["pid"] for child in status(home)["children"]}
    assert {"gateway-1", "gateway-2", "marp-2", "scheduler-2", "agent-node-b"} <= new.keys()
    assert set(new.values()) <= set(home.processes())
    assert not set(old.values()) & set(home.processes())
    assert len(home.json("list")) == 2
    home.run("down")
    assert home.nothing_left() == {}


def test_a_port_in_use_is_named(installation):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = installation.run("up", "--port", str(port), "--emulated", EMULATED, code=1)
    assert f"port {port} is in use by" in result.stderr
    assert f"--port {port + 1}" in result.stderr
    assert installation.nothing_left() == {}


def test_a_folder_that_cannot_be_written_is_named(installation):
    (installation.home / "share").write_text("a file")
    result = installation.run(*UP, code=1)
    assert f"cannot write {installation.home}/share" in result.stderr
    assert "XDG_DATA_HOME" in result.stderr


def test_a_wrong_device_is_named(installation):
    result = installation.run("up", "--emulated", "node-a:emulated-kind:1:huge:1", code=1)
    assert (
        "'huge' is not a size" in result.stderr or "does not start with a number" in result.stderr
    )


def test_a_supervisor_that_dies_while_starting_is_told_at_once(installation):
    process = installation.start(*UP)
    until(lambda: (supervisor_of(installation) or {}).get("pid"), "a supervisor")
    os.kill(supervisor_of(installation)["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=25)
    assert process.returncode == 1
    assert "the supervisor ended with exit code -9" in err
    assert "supervisor.log" in err
    assert installation.nothing_left() == {}


@pytest.mark.parametrize("after", ["up.lock", "status.json", "nats"])
def test_down_stops_an_up_that_has_just_begun(installation, after):
    process = installation.start(*UP)
    until((installation.root / after).exists, after)
    installation.run("down", timeout=40)
    _, err = process.communicate(timeout=15)
    assert process.returncode == 105
    assert "stopped by `frenzy down` while it was starting" in err
    assert installation.nothing_left() == {}


def test_ctrl_c_stops_an_up_whose_supervisor_has_just_begun(installation):
    process = installation.start(*UP)
    until((installation.root / "status.json").exists, "a supervisor")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=25)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert installation.nothing_left() == {}


def test_foreground_and_then_a_server_that_does_not_start(installation):
    process = installation.start(*UP, "--foreground")
    url = process.stdout.readline().strip()
    assert url in installation.run("nodes", "-o", "wide", "--url", url).args
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert installation.nothing_left() == {}
    damaged = next((installation.root / "valkey").rglob("*.aof"))
    damaged.write_bytes(b"not an append-only file" * 10)
    result = installation.run(*UP, code=1)
    assert "valkey" in result.stderr
    assert installation.nothing_left() == {}


@pytest.mark.parametrize("service", ["gateway", "marp", "scheduler", "orchestrator"])
def test_no_process_of_up_imports_a_memory_double(service):
    code = f"import sys, frenzy_{service}.app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    doubles = {"frenzy_shared.bus.memory", "frenzy_shared.state.memory"}
    assert doubles & set(loaded) == set()
    assert f"frenzy_{service}.app" in loaded


def test_the_supervisor_imports_no_memory_double():
    code = "import sys, frenzy.local.supervisor; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"frenzy_shared.bus.memory", "frenzy_shared.state.memory"} & set(loaded) == set()
