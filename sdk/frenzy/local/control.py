"""Start, find and stop the supervisor of a folder, from another process."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from frenzy import config
from frenzy.local import credentials, servers
from frenzy.local.files import write_json
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.ports import require_free
from frenzy.local.processes import ProcessMark, end_all
from frenzy.local.status import Phase, Status, hold, supervised
from frenzy_shared.errors import FrenzyError, Unavailable

Progress = Callable[[str], None]

_START_S: Final = 180.0
_STOP_S: Final = 150.0  # above everything that the supervisor itself waits for
_POLL_S: Final = 0.1


class StartFailed(FrenzyError):
    """Something that `frenzy up` starts did not start; the rest was stopped again."""

    code = "start_failed"


def running(layout: Layout) -> Status | None:
    """Return the status of a living supervisor; ``None`` when there is none."""
    return Status.read(layout.status) if supervised(layout.lock) else None


def prepare(layout: Layout, options: Options) -> None:
    """Check everything that can be checked before a process starts, and store the options.

    Raises:
        Misconfigured: the folder, a package, a server program or the port cannot be used.
        StorageFull: too little disk.
    """
    layout.create()
    servers.require_packages()
    if options.port:
        require_free(options.port)
    write_json(layout.options, options.to_json())


def start(layout: Layout) -> None:
    """Start the supervisor in the background: a session of its own, output to its log."""
    # What an earlier supervisor said must not be taken for this one's word; its children are
    # still needed there, so only the phase changes.
    earlier = Status.read(layout.status)
    children = () if earlier is None else earlier.children
    Status(
        phase=Phase.STARTING, detail="starting", url="", supervisor=None, children=children
    ).write(layout.status)
    with layout.log("supervisor").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "frenzy.local", str(layout.root)],
            env=servers.child_environment(layout),
            cwd=layout.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_ready(layout: Layout, progress: Progress) -> Status:
    """Wait until everything is ready.

    Raises:
        StartFailed: saying which process did not start, and why.
    """
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        status = Status.read(layout.status)
        if status is not None:
            if status.phase is Phase.READY:
                return status
            if status.phase is Phase.FAILED:
                raise StartFailed(status.detail)
            progress(status.detail)
        time.sleep(_POLL_S)
    raise StartFailed(f"not ready after {_START_S:.0f} s", suggestions=(f"see {layout.logs}",))


def stop(layout: Layout, progress: Progress, *, keep_jobs: bool = False) -> bool:
    """Stop the supervisor and everything it runs; return whether anything ran.

    A supervisor that was killed may have left children: they are ended too.

    Raises:
        Unavailable: it does not stop.
    """
    status = running(layout)
    if status is None:
        return _end_left(layout)
    if keep_jobs:
        layout.keep_jobs.touch()
    if status.supervisor is not None:
        status.supervisor.send(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while supervised(layout.lock):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"it does not stop; see {layout.log('supervisor')}",
                suggestions=("kill -9 the supervisor, then: frenzy down",),
            )
        now = Status.read(layout.status)
        progress(now.detail if now else "stopping")
        time.sleep(_POLL_S)
    return True


def remember_server(layout: Layout, url: str) -> None:
    """Write the user's configuration, so that the CLI and SDK find this server."""
    config.save(config.user_file(), url, credentials.load_or_make(layout).admin_token)


@contextmanager
def exclusive(layout: Layout) -> Iterator[bool]:
    """Let one `up` at a time decide; two at once would both start a supervisor."""
    with hold(layout.root / "up.lock") as ours:
        yield ours


def _end_left(layout: Layout) -> bool:
    status = Status.read(layout.status)
    left: list[ProcessMark] = [mark for mark in status.marks if mark.alive] if status else []
    end_all(left, grace_s=15.0)
    return bool(left)
