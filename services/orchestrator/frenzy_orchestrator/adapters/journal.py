"""The agent's memory: one folder per attempt, written so that any crash leaves a whole truth.

A phase and the evidence that announces it are one write; evidence stays in the journal until the
bus has stored it (the journal is the agent's outbox). Writes are synchronous: a few milliseconds
of fsync buy that nothing else can happen between a decision and its record.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from frenzy_orchestrator.core.reconcile import AttemptKey, Stage
from frenzy_orchestrator.shim import files
from frenzy_orchestrator.shim.launch import TOMBSTONE
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import Misconfigured, StorageFull
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.v1 import AttemptPhase, DesiredAttempt, Evidence, EvidenceKind

JOURNAL: Final = "journal.json"
TMP: Final = "tmp"  # beside the attempts, by a short name of each
_RESERVE: Final = "reserve"
_RESERVE_BYTES: Final = 4 * 1024**2
_SEQUENCE_BLOCK: Final = 256  # sequences reserved per write of the counter
_ENDED_JOBS: Final = 2000  # how many jobs' newest ended attempt are remembered
STAGES: Final[Mapping[AttemptPhase, Stage]] = {
    AttemptPhase.PREPARING: Stage.PREPARING,
    AttemptPhase.PREPARED: Stage.PREPARED,
    AttemptPhase.STARTED: Stage.ACTIVE,
    AttemptPhase.STOPPING: Stage.ACTIVE,
    AttemptPhase.EXITED: Stage.ACTIVE,
    AttemptPhase.REFUSED: Stage.ACTIVE,
    AttemptPhase.CLEAN: Stage.CLEAN,
}
# Kinds of which only the newest matters: a long outage of the bus must not pile them up.
_NEWEST_WINS: Final = frozenset({EvidenceKind.PROGRESSED, EvidenceKind.CHECKPOINTED})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class AttemptJournal(Wire):
    """What the agent knows about one attempt. ``order`` is the control plane's last word.

    ``stop_reason`` is set with the tombstone; ``pending`` is evidence not yet stored by the bus.
    """

    order: DesiredAttempt
    phase: AttemptPhase
    rendezvous: str = ""
    warm: bool = False  # it was told that the ranks wait
    stop_reason: StopReason | None = None
    stop_message: str = ""  # why, where the reason alone does not say it
    stop_grace_s: float = 30.0
    pending: tuple[Evidence, ...] = ()
    clean_ms: int | None = None
    reaffirmed_ms: int = 0


class AttemptFolder:
    """One attempt's folder and its journal."""

    def __init__(self, path: Path, journal: AttemptJournal, reserve: Path) -> None:
        """Wrap what is on disk; nothing is written."""
        self.path = path
        self.journal = journal
        self._reserve = reserve

    @property
    def key(self) -> AttemptKey:
        """Return the attempt's name."""
        return AttemptKey(job=self.journal.order.job, attempt=self.journal.order.attempt)

    @property
    def tombstoned(self) -> bool:
        """Tell whether this attempt may never start (again)."""
        return (self.path / TOMBSTONE).exists()

    @property
    def work(self) -> Path:
        """Return the ranks' working folder."""
        return self.path / "work"

    @property
    def tmp(self) -> Path:
        """Return the folder of the ranks' temporary files.

        Its path is short: names of sockets in it must not exceed 107 bytes.
        """
        name = hashlib.blake2s(self.path.name.encode(), digest_size=4).hexdigest()
        return self.path.parent.parent / TMP / name

    def rank(self, number: int) -> Path:
        """Return one rank's folder."""
        return self.path / "ranks" / str(number)

    def record(self, *evidence: Evidence, **changes: Any) -> None:  # noqa: ANN401 - journal fields
        """Change the journal and queue evidence in one durable write.

        Raises:
            StorageFull: nothing was changed.
        """
        replaced = {entry.kind for entry in evidence} & _NEWEST_WINS
        kept = (entry for entry in self.journal.pending if entry.kind not in replaced)
        pending = (*kept, *evidence)
        journal = self.journal.model_copy(update={**changes, "pending": pending})
        _write(self.path / JOURNAL, journal.encode(), self._reserve)
        self.journal = journal

    def acknowledge(self, sequence: int) -> None:
        """Drop evidence that the bus has stored.

        Raises:
            StorageFull: it will be sent again after a restart, which is harmless.
        """
        kept = tuple(entry for entry in self.journal.pending if entry.sequence != sequence)
        self.journal = self.journal.model_copy(update={"pending": kept})
        if not kept:  # a restart may repeat the others: their ids make that harmless
            _write(self.path / JOURNAL, self.journal.encode(), self._reserve)

    def bury(self, reason: StopReason, grace_s: float, message: str = "") -> None:
        """Write the tombstone: from here on the attempt never starts (again).

        The reason is written before it: a crash between the two leaves an attempt that is not
        stopped yet, instead of one that is and nobody knows why or with how much grace.

        Raises:
            StorageFull: there is no tombstone.
        """
        if self.journal.stop_reason is None:
            self.record(stop_reason=reason, stop_grace_s=grace_s, stop_message=message)
        _write(self.path / TOMBSTONE, f"{reason}\n".encode(), self._reserve)

    def discard_inputs(self) -> None:
        """Remove what only running ranks need; logs, reports and records stay."""
        for folder in (self.work, self.path / "data", self.path / "tokenizer", self.tmp):
            shutil.rmtree(folder, ignore_errors=True)


class NodeJournal:
    """All attempts of one node, and the numbers of its evidence."""

    def __init__(self, data_dir: Path) -> None:
        """Read what is on disk.

        Raises:
            Misconfigured: a journal is not readable; what it describes may be running.
        """
        self._root = data_dir / "attempts"
        self._counter = data_dir / "evidence-sequence"
        self._ended_file = data_dir / "ended.json"
        self._reserve = data_dir / _RESERVE
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o700)  # environments of jobs may hold their users' secrets
        self.keep_reserve()
        self.attempts = {folder.key: folder for folder in self._load()}
        self.ended: dict[str, int] = files.read_json(self._ended_file) or {}
        # A fresh folder starts at the wall clock: ids of a node that lost its disk stay unique.
        self._next = max(self._read_counter(), self._highest_pending() + 1)
        self._reserved_to = self._next

    def create(self, order: DesiredAttempt, phase: AttemptPhase) -> AttemptFolder:
        """Make the folder of an attempt that this node has not seen.

        Raises:
            StorageFull: nothing was made.
        """
        path = self._root / f"{order.job}.{order.attempt}"
        folder = AttemptFolder(path, AttemptJournal(order=order, phase=phase), self._reserve)
        try:
            path.mkdir(mode=0o700)
            files.sync_folder(self._root)
            _write(path / JOURNAL, folder.journal.encode(), reserve=None)
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise _storage_full(error, path) from error
        except StorageFull:
            shutil.rmtree(path, ignore_errors=True)
            raise
        self.attempts[folder.key] = folder
        return folder

    def forget(self, key: AttemptKey) -> None:
        """Remove a finished attempt's folder; that it ended stays known.

        Raises:
            StorageFull: the folder is still there.
        """
        newest = max(key.attempt, self.ended.pop(key.job, 0))
        self.ended[key.job] = newest  # moved to the end: the oldest are dropped first
        while len(self.ended) > _ENDED_JOBS:
            del self.ended[next(iter(self.ended))]
        _write(self._ended_file, json.dumps(self.ended).encode(), self._reserve)
        shutil.rmtree(self.attempts.pop(key).path, ignore_errors=True)

    def next_sequence(self) -> int:
        """Return the next evidence number; numbers grow over restarts, with gaps."""
        if self._next >= self._reserved_to:
            self._reserved_to = self._next + _SEQUENCE_BLOCK
            _write(self._counter, str(self._reserved_to).encode(), self._reserve)
        self._next += 1
        return self._next - 1

    def keep_reserve(self) -> None:
        """Take back the space that lets running attempts be recorded on a full disk."""
        if self._reserve.exists():
            return
        try:
            with self._reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        except OSError as error:
            self._reserve.unlink(missing_ok=True)
            if error.errno not in _FULL:
                raise

    def _load(self) -> Iterator[AttemptFolder]:
        for path in sorted(self._root.iterdir()):
            if not (path / JOURNAL).exists():
                # Only ``create`` leaves this: a crash before its first record, so nothing ran.
                shutil.rmtree(path, ignore_errors=True)
                continue
            try:
                journal = AttemptJournal.decode((path / JOURNAL).read_bytes())
            except ValidationError as error:
                raise Misconfigured(
                    f"{path / JOURNAL} cannot be read: {error.errors()[0]['msg']}",
                    suggestions=(
                        "run the version of Frenzy that wrote it",
                        "or stop what runs there and remove the folder",
                    ),
                ) from error
            yield AttemptFolder(path, journal, self._reserve)

    def _read_counter(self) -> int:
        try:
            return int(self._counter.read_text())
        except (FileNotFoundError, ValueError):
            return time.time_ns() // 1_000_000

    def _highest_pending(self) -> int:
        return max(
            (
                entry.sequence
                for folder in self.attempts.values()
                for entry in folder.journal.pending
            ),
            default=0,
        )


def _write(path: Path, data: bytes, reserve: Path | None) -> None:
    """Write durably; on a full disk give up the reserve, once."""
    try:
        files.write_atomically(path, data)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        if reserve is None or not reserve.exists():
            raise _storage_full(error, path) from error
        reserve.unlink(missing_ok=True)
        _write(path, data, reserve=None)


def _storage_full(error: OSError, path: Path) -> Exception:
    if error.errno not in _FULL:
        return error
    return StorageFull(
        f"no space left under {path.parent}: the node agent cannot record attempts",
        suggestions=("free disk space under FRENZY_DATA_DIR",),
    )
