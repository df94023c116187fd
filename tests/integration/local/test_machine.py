"""Folders, files, ports, processes and the supervisor's status on this machine."""

import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from frenzy.local import credentials, drain, servers
from frenzy.local.layout import Layout, default_layout
from frenzy.local.ports import free_ports, require_free
from frenzy.local.processes import ProcessMark, end_all
from frenzy.local.status import ChildStatus, Phase, Status, held, hold
from frenzy_shared.errors import Misconfigured, StorageFull


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_the_layout_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_layout().root == tmp_path / "frenzy"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_layout().root == tmp_path / ".local/share/frenzy"


def test_the_root_is_private(tmp_path):
    Layout(tmp_path / "root").create()
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot write .*file") as caught:
        Layout(tmp_path / "file" / "root").create()
    assert "XDG_DATA_HOME" in caught.value.suggestions[0]


def test_a_full_disk_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(StorageFull, match="only 1000 B"):
        Layout(tmp_path).create()


def test_a_disk_that_fills_up_leaves_no_probe(tmp_path, monkeypatch):
    def full(path, data):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageFull, match="is full"):
        Layout(tmp_path).create()
    assert list(tmp_path.glob(".probe-*")) == []


def test_credentials_are_made_once_and_private(tmp_path):
    layout = Layout(tmp_path)
    layout.create()
    made = credentials.load_or_make(layout)
    assert stat.S_IMODE(layout.secrets.stat().st_mode) == 0o600
    assert credentials.load_or_make(layout) == made
    assert made.admin_token.startswith("frz_")
    layout.secrets.write_text(json.dumps({"admin_token": "x"}))
    with pytest.raises(Misconfigured, match="damaged"):
        credentials.load_or_make(layout)
    layout.secrets.write_text("torn")
    with pytest.raises(Misconfigured, match="damaged"):
        credentials.load_or_make(layout)


def test_free_ports_are_distinct():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    require_free(ports[0])


def test_a_port_in_use_names_its_owner():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=rf"port {port} .*pid {os.getpid()}") as caught:
            require_free(port)
    assert f"--port {port + 1}" in caught.value.suggestions[0]


def test_a_mark_is_one_process_for_ever(sleeper):
    mark = ProcessMark.of(sleeper.pid)
    assert mark.alive
    for other in ({"start_ticks": 1}, {"boot_id": "another boot"}):
        assert not ProcessMark(**{**_fields(mark), **other}).alive
    sleeper.kill()
    sleeper.wait()
    assert not mark.alive
    assert ProcessMark.of(sleeper.pid) is None


def test_a_zombie_is_not_alive(sleeper):
    mark = ProcessMark.of(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not mark.alive


def test_end_all_kills_what_ignores_sigterm(tmp_path):
    ready = tmp_path / "ready"
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "open(sys.argv[1], 'w').close(); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(ready)])
    while not ready.exists():
        assert process.poll() is None
    end_all([ProcessMark.of(process.pid)], grace_s=0.2)
    assert process.wait(5) == -signal.SIGKILL


def test_status_survives_and_marks_children(tmp_path):
    mark = ProcessMark.of(os.getpid())
    child = ChildStatus(name="nats", mark=mark, restarts=2, last_exit=-9)
    gone = ChildStatus(name="marp", mark=None, restarts=0, last_exit=None)
    status = Status(
        phase=Phase.READY, detail="", url="http://x", supervisor=mark, children=(child, gone)
    )
    status.write(tmp_path / "status.json")
    assert Status.read(tmp_path / "status.json") == status
    assert status.marks == (mark,)
    assert Status.read(tmp_path / "absent.json") is None


def test_one_supervisor_at_a_time(tmp_path):
    lock = tmp_path / "lock"
    assert not held(lock)
    with hold(lock) as ours:
        assert ours
        assert held(lock)
    assert not held(lock)


async def test_drain_asks_living_shims_only(tmp_path, sleeper):
    attempt = tmp_path / "attempts" / "job1.1"
    attempt.mkdir(parents=True)
    mark = ProcessMark.of(sleeper.pid)
    run = {"shim": mark.pid, "shim_start": mark.start_ticks, "boot_id": mark.boot_id}
    (attempt / "run.json").write_text(json.dumps(run))
    old = tmp_path / "attempts" / "job0.1"
    old.mkdir()
    (old / "run.json").write_text(json.dumps({**run, "boot_id": "before"}))
    assert drain.attempts_alive([tmp_path]) == ["job1.1"]
    assert await drain.drain([tmp_path], grace_s=5.0) == []
    assert sleeper.wait(5) == -signal.SIGTERM
    assert json.loads((attempt / "stop.json").read_text()) == {"grace_s": 5.0, "reason": "Drained"}
    assert not (old / "stop.json").exists()


def test_children_inherit_no_secrets(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("FRENZY_TOKEN", "x")
    monkeypatch.setenv("PYTHONPATH", "x")
    environment = servers.child_environment(Layout(tmp_path))
    assert environment.keys() <= {
        *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH"),
        *("CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED"),
    }


def _fields(mark):
    return {"pid": mark.pid, "start_ticks": mark.start_ticks, "boot_id": mark.boot_id}
