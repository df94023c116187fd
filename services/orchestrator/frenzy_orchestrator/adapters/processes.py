"""Start shims, find them again after an agent restart, and end what a lost shim left behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from frenzy_orchestrator.core.exits import EndedBy, Ending, RankExit
from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.cgroup import Cgroup
from frenzy_orchestrator.shim.files import read_json
from frenzy_orchestrator.shim.launch import EXIT, MARKER, RUN, STOP
from frenzy_shared import crashpoints
from frenzy_shared.domain.job import StopReason

# What a Python process needs to start; the agent's secrets are not among it.
_SHIM_ENVIRONMENT: Final = (
    "PATH",
    "HOME",
    "LANG",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    crashpoints.VARIABLE,
)


class ShimProcess:
    """A running shim, ours or adopted, watched through a pidfd."""

    def __init__(self, pid: int, start: int, *, is_child: bool) -> None:
        """Watch the process; it may be gone already."""
        self.pid = pid
        self._start = start
        self._is_child = is_child

    @property
    def alive(self) -> bool:
        """Tell whether it still runs."""
        return procfs.is_alive(self.pid, self._start)

    async def wait(self) -> None:
        """Return when the shim has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._collect()
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, ended.set)
        try:
            if self.alive:  # else the pid is another process's by now, or a zombie
                await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._collect()

    def terminate(self) -> None:
        """Ask the shim to end its ranks now; it has the details in the stop file."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def _collect(self) -> None:
        if self._is_child:
            try:
                os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._is_child = False


class ShimHost:
    """Starts shims that outlive the agent."""

    def start(self, folder: Path, secrets: Mapping[str, str]) -> ShimProcess:
        """Start the shim of an attempt in a session of its own.

        ``secrets`` go into its ranks' environment. They reach it as its standard input, in memory:
        on no disk, in no argument.
        """
        environment = {n: os.environ[n] for n in _SHIM_ENVIRONMENT if n in os.environ}
        log = os.open(folder / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        given = _in_memory(json.dumps(dict(secrets)).encode())
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "frenzy_orchestrator.shim", str(folder)],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, given, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP),
            )
        finally:
            os.close(given)
            os.close(log)
        found = procfs.stat(pid)
        return ShimProcess(pid, found.start if found else 0, is_child=True)

    def adopt(self, folder: Path) -> ShimProcess | None:
        """Find the shim that an earlier agent started; ``None`` when it is gone."""
        run = read_json(folder / RUN)
        if run is None or run["boot_id"] != procfs.boot_id():
            return None
        shim = ShimProcess(int(run["shim"]), int(run["shim_start"]), is_child=False)
        return shim if shim.alive else None


def has_run(folder: Path) -> bool:
    """Tell whether a shim ever took this attempt."""
    return (folder / RUN).exists()


def has_started(folder: Path) -> bool:
    """Tell whether the ranks were started."""
    run = read_json(folder / RUN)
    return run is not None and bool(run["started"])


def shim_pid(folder: Path) -> int | None:
    """Return the process that took this attempt, ``None`` when none has."""
    run = read_json(folder / RUN)
    return int(run["shim"]) if run is not None else None


def read_ending(folder: Path, ranks: tuple[int, ...], stop_reason: StopReason | None) -> Ending:
    """Return how an attempt whose shim is gone has ended, as far as anybody knows."""
    record = read_json(folder / EXIT)
    if record is not None:
        return Ending(
            ended_by=EndedBy(record["ended_by"]),
            ranks=tuple(RankExit(**entry) for entry in record["ranks"]),
            message=str(record["message"]),
            stop_reason=stop_reason or _stop_order(folder),
            oom_kills=int(record["oom_kills"]),
        )
    unknown = tuple(RankExit(rank=number, exit_code=None) for number in ranks)
    run = read_json(folder / RUN)
    if run is None:
        return Ending(ended_by=EndedBy.LAUNCH_FAILED, ranks=(), message=_shim_log(folder))
    if run["boot_id"] != procfs.boot_id():
        return Ending(ended_by=EndedBy.REBOOTED, ranks=unknown)
    return Ending(
        ended_by=EndedBy.SHIM_LOST,
        ranks=unknown,
        message="the shim that watched the rank was killed; how the rank ended is not known",
    )


def strays(folder: Path) -> list[procfs.ProcessStat]:
    """Return what still lives of an attempt: cgroup members, marked processes, their children."""
    found = {process.pid: process for process in procfs.with_environment(marker(folder))}
    run = read_json(folder / RUN)
    if run is not None and run["boot_id"] == procfs.boot_id():
        for entry in run["ranks"]:
            rank = procfs.stat(int(entry["pid"]))
            if rank is not None and procfs.is_alive(rank.pid, int(entry["start"])):
                found[rank.pid] = rank
        for pid in _members(run):
            if (member := procfs.stat(pid)) is not None:
                found[pid] = member
    for pid in list(found):
        found.update((process.pid, process) for process in procfs.descendants(pid))
    return list(found.values())


def kill_strays(folder: Path) -> list[procfs.ProcessStat]:
    """Send SIGKILL to everything left of an attempt and return what was found."""
    run = read_json(folder / RUN)
    if run is not None and run["boot_id"] == procfs.boot_id() and _members(run):
        Cgroup(Path(run["cgroup"])).kill()
    found = procfs.end(lambda: strays(folder))
    if not found and run is not None:
        for path in filter(None, (run["cgroup"], run.get("counting"))):
            Cgroup(Path(path)).remove()
    return found


def marker(folder: Path) -> bytes:
    """Return the environment entry that only this attempt's processes have."""
    return f"{MARKER}={folder}\0".encode()


def _in_memory(data: bytes) -> int:
    """Return a descriptor to read ``data`` from, which no path leads to.

    Unlike a pipe's, its writer never waits for a reader.
    """
    descriptor = os.memfd_create("secrets")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _stop_order(folder: Path) -> StopReason | None:
    """Return the reason of a stop that did not come through the agent (``frenzy down``)."""
    order = read_json(folder / STOP)
    try:
        return StopReason(order["reason"]) if order is not None else None
    except (KeyError, ValueError):
        return None


def _members(run: dict[str, object]) -> list[int]:
    return Cgroup(Path(str(run["cgroup"]))).members() if run["cgroup"] else []


def _shim_log(folder: Path) -> str:
    try:
        text = (folder / "shim.log").read_text(errors="replace").strip()
    except FileNotFoundError:
        text = ""
    return f"the shim did not start: {text[-500:] or 'it left no message'}"
