"""Attempt folders, small rank scripts, and proof that no process stays behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.launch import (
    EXIT,
    LAUNCH,
    LEASE,
    MARKER,
    RUN,
    STOP,
    Launch,
    RankLaunch,
)

SLEEP = "import time; time.sleep(600)"
# Ignores SIGTERM, and leaves a double-forked daemon in a session of its own.
NASTY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("daemon.pid.tmp", "w").write(str(os.getpid()))
        os.rename("daemon.pid.tmp", "daemon.pid")
        time.sleep(600)
    os._exit(0)
while not os.path.exists("daemon.pid"):
    time.sleep(0.01)
open("ready", "w").close()
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 600)
"""


def wait_for(condition, what="condition", timeout_s=10.0):
    """Poll until ``condition()`` is truthy and return its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {timeout_s} s")


class ShimFolder:
    """An attempt folder with a shim started in it."""

    def __init__(self, path: Path, scripts, *, cgroup="", fence_after_s=60.0, locks=()):
        self.path = path
        self.marker = f"{MARKER}={path}\0".encode()
        path.mkdir(parents=True, exist_ok=True)
        self.renew_lease()
        ranks = tuple(self._rank(number, script) for number, script in enumerate(scripts))
        launch = Launch(
            ranks=ranks,
            device_locks=tuple(str(lock) for lock in locks),
            cgroup=cgroup,
            fence_after_s=fence_after_s,
            grace_s=0.4,
            peer_grace_s=0.4,
        )
        (path / LAUNCH).write_text(json.dumps(launch.to_json()))
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "frenzy_orchestrator.shim", str(self.path)],
            start_new_session=True,
        )
        return self

    def run_json(self):
        def started():
            found = self.read(RUN)
            return found if found and found["started"] else None

        return wait_for(started, "ranks started")

    def exit_json(self, timeout_s=10.0):
        wait_for(lambda: (self.path / EXIT).exists(), "exit.json", timeout_s)
        return self.read(EXIT)

    def read(self, name):
        path = self.path / name
        return json.loads(path.read_text()) if path.exists() else None

    def stop(self, grace_s=0.3):
        (self.path / STOP).write_text(json.dumps({"grace_s": grace_s, "reason": "ByUser"}))
        os.kill(self.process.pid, signal.SIGTERM)

    def renew_lease(self):
        (self.path / LEASE).write_text(str(procfs.boottime()))

    def living(self):
        return procfs.with_environment(self.marker)

    def destroy(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
        procfs.send(self.living(), signal.SIGKILL)

    def _rank(self, number, script):
        return RankLaunch(
            rank=number,
            argv=(sys.executable, "-c", script),
            env={"PATH": os.environ["PATH"], MARKER: str(self.path)},
            cwd=str(self.path),
            stdout=str(self.path / f"{number}.out"),
            stderr=str(self.path / f"{number}.err"),
        )


@contextmanager
def shim_folder(path: Path, scripts, **options) -> Iterator[ShimFolder]:
    """Start a shim on small Python scripts; kill whatever is left at the end."""
    folder = ShimFolder(path, scripts, **options)
    try:
        yield folder.start()
    finally:
        folder.destroy()
