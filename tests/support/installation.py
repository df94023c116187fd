"""The `frenzy` command as a user has it: a real process, folders of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FRENZY = str(Path(sys.executable).parent / "frenzy")


class Installation:
    """One user's home. Whatever still runs at the end is an error, and is ended."""

    def __init__(self, home):
        self.home = home
        self.root = home / "share" / "frenzy"
        self.environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "XDG_DATA_HOME": str(home / "share"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "TMPDIR": str(home / "tmp"),
            "NO_COLOR": "1",
        }
        (home / "tmp").mkdir(parents=True)

    def start(self, *arguments):
        return subprocess.Popen(
            [FRENZY, *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, code=0, timeout=120):
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"frenzy {' '.join(arguments)} takes over {timeout} s\n{out}\n{err}")
        assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return subprocess.CompletedProcess(arguments, code, out, err)

    def exit_code(self, *arguments):
        process = self.start(*arguments)
        process.communicate(timeout=60)
        return process.returncode

    def attempt(self, *arguments, timeout=60):
        """Run a command that may fail: a server may be away. Return what it gave."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments, **options):
        return json.loads(self.run(*arguments, "-o", "json", **options).stdout)

    def processes(self):
        """Living processes of this home: by command, environment or folder."""
        mark = str(self.home).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                seen = command + (entry / "environ").read_bytes()
                seen += os.fsencode(os.readlink(entry / "cwd"))
                if mark in seen and state not in "ZX":
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def logs(self):
        """The last lines of every process's log, for failures."""
        parts = []
        for log in sorted(self.home.rglob("logs/*.log")):
            parts += [f"== {log.name}", *log.read_text(errors="replace").splitlines()[-8:]]
        return "\n".join(parts)

    def nothing_left(self, within_s=5.0):
        deadline = time.monotonic() + within_s
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def destroy(self):
        for _ in range(20):
            if not (left := self.processes()):
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


@pytest.fixture
def installation(tmp_path):
    home = Installation(tmp_path / "home")
    yield home
    home.destroy()


def until(condition, what, within_s=60.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(0.1)
