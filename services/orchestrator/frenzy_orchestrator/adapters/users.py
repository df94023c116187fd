"""The Unix users that ranks run as, and what of an attempt belongs to them. Needs root.

A range of numbers gives each job a user of its own: the job's number in order of arrival says
which. It is the same on every node and in every attempt, so a gang shares its checkpoints and a
later attempt reads them, and no other job can. A name is one user for all jobs: it keeps them off
the agent, not off each other.
"""

import grp
import os
import pwd
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_orchestrator.adapters.journal import AttemptFolder
from frenzy_orchestrator.adapters.preparation import Inputs
from frenzy_orchestrator.shim import procfs
from frenzy_orchestrator.shim.confine import RunAs
from frenzy_shared.errors import Misconfigured

_OPEN_BELOW: Final = frozenset({"attempts", "tmp", "checkpoints"})
_PASS: Final = 0o711  # others may pass through, and not look
_MEMBERS_PASS: Final = 0o710
_MEMBERS_READ: Final = 0o640
_OWN: Final = 0o700
_CHECKPOINTS: Final = 0o2750  # new files get the group of the folder of all checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUsers:
    """The users of this node's jobs. ``name`` is "" where each job has its own of ``count``."""

    first: int
    count: int
    gid: int  # of the one user; each user of a range has the group of its number
    name: str = ""
    groups: tuple[int, ...] = ()

    def of(self, job_number: int) -> RunAs:
        """Return the user of a job.

        Raises:
            ValueError: the control plane does not number jobs.
        """
        if self.name:
            return RunAs(uid=self.first, gid=self.gid, groups=self.groups)
        if job_number < 1:
            raise ValueError("FRENZY_JOB_USERS needs a control plane that numbers jobs: upgrade it")
        uid = self.first + job_number % self.count
        return RunAs(uid=uid, gid=uid, groups=self.groups)

    def environment(self, user: RunAs, folder: AttemptFolder) -> dict[str, str]:
        """Return what programs ask for about the user they run as."""
        name = self.name or f"frenzy-{user.uid}"
        return {"USER": name, "LOGNAME": name, "HOME": str(folder.work)}

    def hand_over(self, folder: AttemptFolder, inputs: Inputs, user: RunAs) -> None:
        """Give the job's user what is its own, and let it read what it is told; nothing else.

        What the agent reads or writes by name lies in folders that stay its own: a link that a
        job puts there would lead it anywhere.

        Raises:
            PermissionError: the user cannot read its data.
            OSError: something cannot be given away, or the user has processes of another job.
        """
        if not self.name:
            _refuse_shared(user, folder.key.job)
        order = folder.journal.order
        ranks = [folder.rank(entry.rank) for entry in order.ranks]
        for kept in (folder.path, folder.path / "ranks", *ranks):
            _set(kept, 0, user.gid, _MEMBERS_PASS)
        for name in ("plan.json", "deepspeed.json"):
            _set(folder.path / name, 0, user.gid, _MEMBERS_READ)
        for rank in ranks:
            report = rank / "report.jsonl"
            report.touch()
            _set(report, user.uid, user.gid, _OWN)
        for name in ("data", "tokenizer"):
            _give(folder.path / name, user.uid, user.gid, _OWN)
        for own in (folder.work, folder.tmp):
            _give(own, user.uid, user.gid, _OWN)
        checkpoints = Path(inputs.checkpoints)
        _give(checkpoints, user.uid, checkpoints.parent.stat().st_gid, _CHECKPOINTS)
        for what, path in (("data", inputs.data), ("tokenizer", inputs.tokenizer)):
            if path and not may(user, "-r", path):
                raise PermissionError(f"{what}: {path} is closed to user {user.uid} of the job")

    def prepare_node(self, data_dir: Path, checkpoints: Path, programs: Iterable[str]) -> None:
        """Let jobs' users pass to what is theirs, and close the rest of the agent's folder.

        Raises:
            Misconfigured: they cannot get there, or cannot run the programs of ranks.
        """
        checkpoints.mkdir(parents=True, exist_ok=True)
        for entry in data_dir.iterdir():
            if entry.name not in _OPEN_BELOW and entry != checkpoints and not entry.is_symlink():
                entry.chmod(stat.S_IMODE(entry.stat().st_mode) & _OWN)
        for folder in (data_dir / "attempts", data_dir / "tmp"):
            folder.mkdir(exist_ok=True)
            folder.chmod(_PASS)
        for attempt in (data_dir / "attempts").iterdir():  # of a time without such users
            attempt.chmod(stat.S_IMODE(attempt.stat().st_mode) & ~0o007)
        user = RunAs(uid=self.first, gid=self.gid, groups=self.groups)
        for test, path in (
            ("-x", str(data_dir / "attempts")),
            ("-x", str(checkpoints)),
            *(("-x", program) for program in programs),
        ):
            if not may(user, test, path):
                raise Misconfigured(
                    f"FRENZY_JOB_USERS: {path} is closed to user {user.uid}",
                    suggestions=(
                        "let others pass through the folders above it: chmod o+x FOLDER",
                        "Python and its packages must lie where everybody can read them",
                    ),
                )


def open_job_users(users: str, groups: str) -> JobUsers | None:
    """Read FRENZY_JOB_USERS and FRENZY_JOB_GROUPS; None where ranks run as the agent.

    Raises:
        Misconfigured: no root, an unknown name, or numbers that people have.
    """
    if not users:
        return None
    if os.geteuid() != 0:
        raise Misconfigured(
            "FRENZY_JOB_USERS needs an agent that runs as root",
            suggestions=("run it as root", "or leave the variable out"),
        )
    further = tuple(_group(name.strip()) for name in groups.split(",") if name.strip())
    first, dash, last = users.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        return _range(int(first), int(last), further)
    try:
        entry = pwd.getpwnam(users)
    except KeyError:
        raise Misconfigured(
            f"FRENZY_JOB_USERS: there is no user {users!r} on this machine",
            suggestions=("write a range of numbers that nobody has, such as 200000-299999",),
        ) from None
    if entry.pw_uid == 0:
        raise Misconfigured("FRENZY_JOB_USERS: jobs must not run as root")
    return JobUsers(
        first=entry.pw_uid, count=1, gid=entry.pw_gid, name=entry.pw_name, groups=further
    )


def may(user: RunAs, test: str, path: str) -> bool:
    """Ask the kernel, as that user, for ``test -r PATH`` or the like."""
    return (
        subprocess.run(
            ["/usr/bin/test", test, path],
            user=user.uid,
            group=user.gid,
            extra_groups=user.groups,
            check=False,
        ).returncode
        == 0
    )


def _range(first: int, last: int, groups: tuple[int, ...]) -> JobUsers:
    taken = next((e for e in pwd.getpwall() if first <= e.pw_uid <= last), None)
    if taken is not None:
        raise Misconfigured(
            f"FRENZY_JOB_USERS {first}-{last}: {taken.pw_uid} is user {taken.pw_name!r}",
            suggestions=("use numbers that nobody has, such as 200000-299999",),
        )
    return JobUsers(first=first, count=last - first + 1, gid=first, groups=groups)


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise Misconfigured(f"FRENZY_JOB_GROUPS: there is no group {name!r} here") from None


def _refuse_shared(user: RunAs, job: str) -> None:
    """Refuse a user that another job's processes have: the range is smaller than what runs."""
    own = f"FRENZY_JOB_ID={job}\0".encode()
    for pid in procfs.pids():
        try:
            owner = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - on a hot path
            stranger = owner == user.uid and own not in Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if stranger:
            raise OSError(f"user {user.uid} has a process that is not of this job (pid {pid})")


def _give(top: Path, uid: int, gid: int, mode: int) -> None:
    """Give a folder or file and all below it away; no link is followed.

    The top comes last: where it is the user's already, so is the rest.
    """
    if not top.exists() or top.stat().st_uid == uid:
        return
    for _, folders, files, descriptor in os.fwalk(top, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)
    _set(top, uid, gid, mode)


def _set(path: Path, uid: int, gid: int, mode: int) -> None:
    os.chown(path, uid, gid)
    path.chmod(mode)
