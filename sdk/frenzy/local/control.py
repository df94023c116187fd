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
from frenzy.local.doors import LOOPBACK
from frenzy.local.files import read_json, write_json
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.ports import require_free
from frenzy.local.processes import ProcessMark, end_all
from frenzy.local.status import Phase, Status, held, hold
from frenzy_shared.errors import FrenzyError, Unavailable

Progress = Callable[[str], None]

_START_S: Final = 180.0
_UP_S: Final = 30.0  # for an `up` to have a supervisor that says who it is
_STOP_S: Final = 150.0  # above everything that the supervisor itself waits for
_POLL_S: Final = 0.1


class StartFailed(FrenzyError):
    """Something that `frenzy up` starts did not start; the rest was stopped again."""

    code = "start_failed"


def running(layout: Layout) -> Status | None:
    """Return the status of a living supervisor; ``None`` when there is none."""
    return Status.read(layout.status) if held(layout.lock) else None


def last_options(layout: Layout) -> Options | None:
    """Return what the present or last `up` was asked for; None when there was none."""
    stored = read_json(layout.options)
    return None if stored is None else Options.from_json(stored)


def prepare(layout: Layout, options: Options) -> None:
    """Check everything that can be checked before a process starts, and store the options.

    What a killed supervisor left still has its ports: the next supervisor ends it first.

    Raises:
        Misconfigured: the folder, a package, a server program or the port cannot be used.
        StorageFull: too little disk.
    """
    layout.create()
    servers.require_packages()
    host = options.listen or LOOPBACK
    ours = bool(_left(layout))
    if options.port and not ours:
        require_free(options.port, host)
    if options.listen and not ours:
        require_free(options.bus_port, host, "--bus-port")
    write_json(layout.options, options.to_json())


def start(layout: Layout) -> "subprocess.Popen[bytes]":
    """Start the supervisor in the background: a session of its own, output to its log."""
    # What an earlier supervisor said must not be taken for this one's word; its children are
    # still needed there, so only the phase changes.
    earlier = Status.read(layout.status)
    children = () if earlier is None else earlier.children
    Status(
        phase=Phase.STARTING, detail="starting", url="", supervisor=None, children=children
    ).write(layout.status)
    with layout.log("supervisor").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "frenzy.local", str(layout.root)],
            env=servers.child_environment(layout.temporary),
            cwd=layout.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_ready(
    layout: Layout, progress: Progress, supervisor: "subprocess.Popen[bytes] | None" = None
) -> Status:
    """Wait until everything is ready. ``supervisor`` is what ``start`` gave, if this process did.

    Raises:
        StartFailed: saying which process did not start, and why.
        Unavailable: it was told to stop meanwhile.
    """
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        ended = _ended(layout, supervisor)  # before the reading: its last word counts
        status = Status.read(layout.status)
        if status is not None:
            if status.phase is Phase.READY and not ended:
                return status
            if status.phase is Phase.FAILED:
                raise StartFailed(status.detail)
            if status.phase in (Phase.STOPPING, Phase.STOPPED):
                raise Unavailable("stopped by `frenzy down` while it was starting")
        if ended:
            _end_left(layout)
            raise StartFailed(ended, suggestions=(f"see {layout.log('supervisor')}",))
        progress(status.detail if status else "starting")
        time.sleep(_POLL_S)
    raise StartFailed(f"not ready after {_START_S:.0f} s", suggestions=(f"see {layout.logs}",))


def stop(layout: Layout, progress: Progress, *, keep_jobs: bool = False) -> bool:
    """Stop the supervisor and everything it runs; return whether anything ran.

    An `up` that has only begun is waited for until it has a supervisor to stop. A supervisor that
    was killed may have left children: they are ended too.

    Raises:
        Unavailable: it does not stop.
    """
    _await_supervisor(layout, progress)
    if not held(layout.lock):
        return _end_left(layout)
    if keep_jobs:
        layout.keep_jobs.touch()
    told: ProcessMark | None = None
    for status in _until(lambda: not held(layout.lock), layout, progress):
        # One that has just begun holds the lock before it says who it is.
        mark = status.supervisor if status else None
        if mark is not None and mark != told:
            mark.send(signal.SIGTERM)
            told = mark
    return True


def abandon(
    layout: Layout, progress: Progress, supervisor: "subprocess.Popen[bytes] | None"
) -> None:
    """Stop what this process has started, or waits for, however far it has come.

    Raises:
        Unavailable: it does not stop.
    """
    if supervisor is not None:
        supervisor.terminate()  # before it listens to signals it has no child yet
        for _ in _until(lambda: supervisor.poll() is not None, layout, progress):
            pass
    elif (status := running(layout)) is not None and status.supervisor is not None:
        status.supervisor.send(signal.SIGTERM)
        for _ in _until(lambda: not held(layout.lock), layout, progress):
            pass
    _end_left(layout)


def remember_server(layout: Layout, url: str) -> None:
    """Write the user's configuration, so that the CLI and SDK find this server."""
    authority = layout.authority if url.startswith("https:") else None
    token = credentials.load_or_make(layout).admin_token
    config.save(config.user_file(), url, token, str(authority or ""))


@contextmanager
def exclusive(layout: Layout) -> Iterator[bool]:
    """Let one `up` at a time decide; two at once would both start a supervisor."""
    with hold(layout.up_lock) as ours:
        yield ours


def _ended(layout: Layout, supervisor: "subprocess.Popen[bytes] | None") -> str:
    """Say how the supervisor ended; empty while it lives."""
    if supervisor is None:
        return "" if held(layout.lock) else "the supervisor ended"
    code = supervisor.poll()
    return "" if code is None else f"the supervisor ended with exit code {code}"


def _await_supervisor(layout: Layout, progress: Progress) -> None:
    """Wait while an `up` works and nobody can be told to stop yet."""
    deadline = time.monotonic() + _UP_S
    while held(layout.up_lock) and time.monotonic() < deadline:
        # Not by its lock: probing that could keep the new supervisor from getting it.
        status = Status.read(layout.status)
        if status is not None and status.supervisor is not None and status.supervisor.alive:
            return
        progress("waiting for `frenzy up`, which has just begun")
        time.sleep(_POLL_S)


def _until(
    stopped: Callable[[], bool], layout: Layout, progress: Progress
) -> Iterator[Status | None]:
    """Yield what the supervisor says until it has stopped."""
    deadline = time.monotonic() + _STOP_S
    while not stopped():
        if time.monotonic() > deadline:
            raise Unavailable(
                f"it does not stop; see {layout.log('supervisor')}",
                suggestions=("kill -9 the supervisor, then: frenzy down",),
            )
        status = Status.read(layout.status)
        yield status
        progress(status.detail if status else "stopping")
        time.sleep(_POLL_S)


def _end_left(layout: Layout) -> bool:
    left = _left(layout)
    end_all(left, grace_s=15.0)
    return bool(left)


def _left(layout: Layout) -> list[ProcessMark]:
    status = Status.read(layout.status)
    return [mark for mark in status.marks if mark.alive] if status else []
