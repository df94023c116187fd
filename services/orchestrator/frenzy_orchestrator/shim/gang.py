"""Run one attempt's ranks on this node until nothing of them is left.

Rules: one launch per folder, ever; a failed rank ends the others; a stop, a SIGTERM or an old
lease ends all (SIGTERM to the ranks, SIGKILL to everything after a grace); ``exit.json`` is
written when no descendant lives, never before.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_orchestrator.shim import cgroup, confine, locks, procfs
from frenzy_orchestrator.shim.files import ReservedFile, read_json, write_json
from frenzy_orchestrator.shim.launch import EXIT, LEASE, RUN, STOP, TOMBSTONE, Launch, RankLaunch
from frenzy_shared import crashpoints

_TICK_S: Final = 0.25  # how often the lease and the stop file are looked at
_SWEEP_TICK_S: Final = 0.02
_LOCK_WAIT_S: Final = 5.0  # an attempt that has just ended may still be closing its devices
_OURS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
_SET_CHILD_SUBREAPER: Final = 36
_SET_PARENT_DEATH_SIGNAL: Final = 1
_EXIT_BASE_BYTES: Final = 4096
_EXIT_RANK_BYTES: Final = 256


@dataclass(slots=True)
class _Rank:
    """A started rank; ``exit_code`` None while it runs."""

    number: int
    pid: int
    start: int
    exit_code: int | None = None
    ended_at: float | None = None
    signalled: bool = False  # we sent it a signal before it ended


class Gang:
    """The ranks of one attempt on this node and their ending."""

    def __init__(self, folder: Path, launch: Launch, secrets: Mapping[str, str]) -> None:
        """Take over the calling process: it must do nothing else.

        ``secrets`` are variables of every rank, beside those that ``launch`` has.
        """
        self._folder = folder
        self._launch = launch
        self._secrets = secrets
        self._ranks: list[_Rank] = []
        self._locks: list[int] = []
        self._cgroup: cgroup.Cgroup | None = None
        self._counting: cgroup.Cgroup | None = None  # where the first cannot count processes
        self._ended_by = ""
        self._message = ""
        self._kill_at: float | None = None
        self._lease_at = procfs.boottime()

    def run(self) -> None:
        """Start the ranks, see them to their end, and write ``exit.json``."""
        _become_keeper()
        record = ReservedFile(
            self._folder / EXIT, _EXIT_BASE_BYTES + _EXIT_RANK_BYTES * len(self._launch.ranks)
        )
        self._make_cgroups()
        self._write_run(started=False)
        crashpoints.reach("shim.after-run")
        # Only now: an agent that writes the tombstone later finds us in run.json.
        if (self._folder / TOMBSTONE).exists():
            self._end("stopped", "stopped before it was started")
        else:
            self._start()
        while any(rank.exit_code is None for rank in self._ranks):
            self._wait(_TICK_S)
            self._look()
        self._sweep()
        oom_kills = self._cgroup.oom_kills() if self._cgroup else 0
        for group in (self._cgroup, self._counting):
            if group:
                group.remove()
        crashpoints.reach("shim.before-exit")
        record.commit(json.dumps(self._exit(oom_kills)).encode())

    def _make_cgroups(self) -> None:
        name = self._launch.cgroup
        if not name:
            return
        self._cgroup = cgroup.create(name)
        most = self._launch.limits.processes * len(self._launch.ranks)
        if most and not (self._cgroup and self._cgroup.bound(most)):
            self._counting = cgroup.create_counting(name)
            if self._counting:
                self._counting.bound(most)

    def _start(self) -> None:
        try:
            self._locks = locks.take(self._launch.device_locks, within_s=_LOCK_WAIT_S)
        except BlockingIOError as error:
            self._end("device_busy", f"{Path(error.filename).stem} is held by another attempt")
            return
        covered = self._launch.cover_tmp
        tmp = {"TMPDIR": "/tmp"} if covered and confine.cover_tmp(Path(covered)) else {}  # noqa: S108 - its own
        groups = [group for group in (self._cgroup, self._counting) if group]
        enter = _entry(groups, self._launch, os.getpid())
        for launch in self._launch.ranks:
            try:
                env = {**self._secrets, **launch.env, **tmp}
                rank = _spawn(launch, env, self._launch.run_as, enter, self._locks)
                self._ranks.append(rank)
            except (OSError, subprocess.SubprocessError) as error:
                self._end("launch_failed", f"rank {launch.rank}: {error}")
                self._terminate(0.0)
                return
        crashpoints.reach("shim.after-ranks")
        self._write_run(started=True)

    def _look(self) -> None:
        """Look at everything that can end the ranks, the most urgent last."""
        if any(rank.exit_code not in (None, 0) for rank in self._ranks):
            self._end("rank_failed")
            self._terminate(self._launch.peer_grace_s)
        if (self._folder / STOP).exists():
            self._end("stopped")
            self._terminate(self._ordered_grace_s())
        age = procfs.boottime() - self._read_lease()
        if age > self._launch.fence_after_s:
            self._end("fenced", f"the control plane has not answered for {age:.0f} s")
            self._terminate(self._launch.grace_s)
        if self._kill_at is not None and procfs.boottime() >= self._kill_at:
            self._kill_everything()

    def _end(self, ended_by: str, message: str = "") -> None:
        if not self._ended_by:  # the first cause is the cause
            self._ended_by, self._message = ended_by, message

    def _terminate(self, grace_s: float) -> None:
        """Send SIGTERM once; SIGKILL follows at the earliest deadline ever asked for.

        Only the ranks get SIGTERM, not their groups: a rank needs its data loader's processes
        for its last checkpoint.
        """
        deadline = procfs.boottime() + grace_s
        if self._kill_at is None:
            for rank in self._ranks:
                if rank.exit_code is None:
                    rank.signalled = True
                    os.kill(rank.pid, signal.SIGTERM)  # not reaped yet, so the pid is still its
        self._kill_at = deadline if self._kill_at is None else min(self._kill_at, deadline)

    def _wait(self, timeout_s: float) -> None:
        """Sleep until a signal or the timeout, then reap."""
        received = signal.sigtimedwait(_OURS, timeout_s)
        if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
            self._end("stopped")
            self._terminate(self._ordered_grace_s())
        self._reap()

    def _reap(self) -> bool:
        """Collect the dead, adopted orphans included; tell whether any child is left."""
        by_pid = {rank.pid: rank for rank in self._ranks}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if (rank := by_pid.get(pid)) is not None:
                rank.exit_code = os.waitstatus_to_exitcode(status)
                rank.ended_at = procfs.boottime()

    def _sweep(self) -> None:
        """Kill and reap until nothing of the attempt lives: daemons, orphans, forks in flight."""
        while self._reap() or (self._cgroup and self._cgroup.members()):
            self._kill_everything()
            signal.sigtimedwait(_OURS, _SWEEP_TICK_S)

    def _kill_everything(self) -> None:
        for rank in self._ranks:
            rank.signalled = rank.signalled or rank.exit_code is None
        if self._cgroup:
            self._cgroup.kill()
        # As subreaper we are the ancestor of everything that was ever started below us.
        procfs.end(lambda: procfs.descendants(os.getpid()))

    def _ordered_grace_s(self) -> float:
        """Return the grace that the stop file asks for, else the attempt's own."""
        order = read_json(self._folder / STOP) or {}
        grace_s = order.get("grace_s")
        return float(grace_s) if isinstance(grace_s, int | float) else self._launch.grace_s

    def _read_lease(self) -> float:
        """Return the lease; an unreadable one counts from the last good reading."""
        with contextlib.suppress(OSError, ValueError):
            self._lease_at = float((self._folder / LEASE).read_text())
        return self._lease_at

    def _write_run(self, *, started: bool) -> None:
        own = procfs.stat(os.getpid())
        write_json(
            self._folder / RUN,
            {
                "shim": os.getpid(),
                "shim_start": own.start if own else 0,
                "boot_id": procfs.boot_id(),
                "cgroup": str(self._cgroup.path) if self._cgroup else "",
                "counting": str(self._counting.path) if self._counting else "",
                "started": started,
                "ranks": [{"rank": r.number, "pid": r.pid, "start": r.start} for r in self._ranks],
            },
        )

    def _exit(self, oom_kills: int) -> dict[str, object]:
        return {
            "ended_by": self._ended_by or "completed",
            "message": self._message[: _EXIT_BASE_BYTES // 8],
            "boottime": procfs.boottime(),
            "oom_kills": oom_kills,
            "ranks": [
                {
                    "rank": rank.number,
                    "exit_code": rank.exit_code,
                    "ended_at": rank.ended_at,
                    "signalled": rank.signalled,
                }
                for rank in self._ranks
            ],
        }


def _become_keeper() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)  # taken one by one with sigtimedwait
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(PermissionError):  # only root may shield itself
        Path("/proc/self/oom_score_adj").write_text("-500")


def _entry(groups: list[cgroup.Cgroup], launch: Launch, keeper: int) -> Callable[[], None]:
    """Return what a rank's process does between fork and exec. The shim has one thread."""
    prctl = ctypes.CDLL(None).prctl

    def enter() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("0")
        for group in groups:
            # A cgroup that lets nobody in (delegation rules) leaves the walk over descendants.
            with contextlib.suppress(OSError):
                group.join()
        confine.limit(launch.limits, ranks=len(launch.ranks))
        if launch.run_as is not None:
            confine.become(launch.run_as)
        # After the change of user, which takes the wish back.
        prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)  # the shim died before the line above could protect against that

    return enter


def _spawn(
    launch: RankLaunch,
    env: Mapping[str, str],
    run_as: confine.RunAs | None,
    enter: Callable[[], None],
    lock_descriptors: list[int],
) -> _Rank:
    """Start one rank in a process group of its own.

    It inherits the device locks, so that a device stays locked while anything of the attempt
    lives, even after the shim was killed.
    """
    with open(launch.stdout, "ab") as stdout, open(launch.stderr, "ab") as stderr:  # noqa: PTH123 - paths are texts here
        if run_as is not None:  # programs open /dev/stderr anew, as the user that they are
            for output in (stdout, stderr):
                os.fchown(output.fileno(), run_as.uid, run_as.gid)
        process = subprocess.Popen(
            launch.argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=launch.cwd,
            env=env,
            preexec_fn=enter,  # noqa: PLW1509 - the shim has one thread
            pass_fds=lock_descriptors,
            process_group=0,
        )
    found = procfs.stat(process.pid)
    process.returncode = 0  # we reap by ourselves; keeps Popen from doing it
    return _Rank(number=launch.rank, pid=process.pid, start=found.start if found else 0)
