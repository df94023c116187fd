"""Checkpoints that nobody can need any more: those of jobs that ended long ago.

A job that has not ended may go on from its newest checkpoint, however long it waits. So the control
plane is asked about each folder, a few with every heartbeat, and what it does not answer stays.
"""

import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frenzy_orchestrator.adapters.threads import in_own_thread
from frenzy_shared.clock import Clock

log = logging.getLogger(__name__)

_LOOK_S: Final = 3600.0
_ASKED: Final = 32  # in one heartbeat
_UNKNOWN_S: Final = 86_400.0  # at least, for a job that the control plane has forgotten
_JOB: Final = re.compile(r"[0-9a-z]{26}")
_STEP: Final = re.compile(r"step-[0-9]+|\.tmp-.+")


@dataclass(kw_only=True)
class OldCheckpoints:
    """The folders of this node's jobs below ``root``. ``keep_s`` 0 keeps everything.

    Other nodes may share the folder and do the same: what is gone already is fine.
    """

    root: Path
    keep_s: float
    clock: Clock
    _asking: list[str] = field(default_factory=list[str])
    _due: list[str] = field(default_factory=list[str])
    _looked_at: float | None = None

    @property
    def asking(self) -> tuple[str, ...]:
        """Return the jobs to ask about now."""
        return tuple(self._asking[:_ASKED])

    def hear(self, asked: Iterable[str], over: Mapping[str, int]) -> None:
        """Take the answer: when each job ended that is over, 0 for one that nobody knows."""
        answered = set(asked)
        self._asking = [job for job in self._asking if job not in answered]
        self._due += [job for job in answered if job in over and self._is_old(job, over[job])]

    async def work(self) -> None:
        """Remove what is due, and look once an hour for what to ask about."""
        due, self._due = self._due, []
        for job in due:
            await in_own_thread(lambda job=job: _remove_steps(self.root / job))  # type: ignore[misc]
            log.info("removed the checkpoints of job %s, which ended long ago", job)
        now = self.clock.monotonic()
        if self.keep_s and (self._looked_at is None or now - self._looked_at >= _LOOK_S):
            self._looked_at = now
            self._asking = await in_own_thread(lambda: _with_steps(self.root))

    def _is_old(self, job: str, finished_ms: int) -> bool:
        if finished_ms:
            return self.clock.now_ms() - finished_ms > self.keep_s * 1000
        written_ms = _newest_ms(self.root / job)
        return self.clock.now_ms() - written_ms > max(self.keep_s, _UNKNOWN_S) * 1000


def _with_steps(root: Path) -> list[str]:
    """Return the jobs whose folders have checkpoints, by name."""
    try:
        names = sorted(path.name for path in root.iterdir() if _JOB.fullmatch(path.name))
    except (FileNotFoundError, PermissionError):
        return []
    return [name for name in names if any(_steps(root / name))]


def _steps(folder: Path) -> Iterable[Path]:
    try:
        return [path for path in folder.iterdir() if _STEP.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _newest_ms(folder: Path) -> int:
    """Return when a folder or a checkpoint in it was last written to."""
    newest = 0.0
    for path in (folder, *_steps(folder)):
        try:
            newest = max(newest, path.stat().st_mtime)
        except FileNotFoundError:
            continue
    return round(newest * 1000)


def _remove_steps(folder: Path) -> None:
    """Remove the checkpoints; the exported model and whatever else is there stays."""
    for path in _steps(folder):
        shutil.rmtree(path, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
