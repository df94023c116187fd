"""What keeps the store itself right: finished jobs that are forgotten, and its own history.

A store that was restored from an old copy, or emptied, looks healthy. What it says is no longer
true: devices that it calls free are in use. In SAFE MODE it refuses every change until its
records were put right by ``restore``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.state.port import OutboxMessage, Result, Timer

Json = Mapping[str, Any]
Lease = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Where the store is in its history.

    ``gen`` is random and made once in a store's life; ``posted`` counts the messages that its
    changes left, ``decisions`` the announced decisions about tokens and projects. None of them
    changes backwards by itself. ``safe_mode`` says why it is in SAFE MODE.
    """

    gen: str
    posted: int
    safe_mode: str = ""
    decisions: int = 0

    @property
    def mark(self) -> str:
        """Return what events carry of it."""
        return f"{self.gen}:{self.posted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRestore:
    """A job as it was: its whole record, and what is known beside it."""

    record: Json
    spec: Json | None = None
    plans: Json | None = None
    timeline: Sequence[Json] = ()
    outbox: Sequence[OutboxMessage] = ()  # for a record that restoring itself makes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRestore:
    """A node as it was."""

    record: Json
    outbox: Sequence[OutboxMessage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A token or a project as its newest announcement has it; ``stored`` None: it was removed."""

    kind: str  # "token" | "project"
    id: str
    version: int
    stored: Json | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Records to write as they are, and the history that goes on: its ``gen`` and ``posted``."""

    lease: Lease
    gen: str
    posted: int
    jobs: Sequence[JobRestore] = ()
    nodes: Sequence[NodeRestore] = ()
    decisions: Sequence[Decision] = ()  # those that the store has not counted yet are written


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The end of SAFE MODE: every device's owner, and the timers of what goes on."""

    lease: Lease
    owners: Mapping[str, str]
    timers: Sequence[Timer] = ()


class Keeper(Protocol):
    """The part of the store that keeps it right. Raises ``Unavailable`` as the rest does."""

    async def oldest_finished(self, limit: int) -> tuple[JobRecord, ...]:
        """Read the jobs that finished first, oldest first."""
        ...

    async def forget(self, job: JobId, *, version: int, timers: Sequence[str] = ()) -> Result:
        """Remove a finished job with all that belongs to it, its idempotency key too.

        NOT_FOUND, STALE when its version is another, BAD_STATE when it has not finished.
        """
        ...

    async def gone_epoch(self) -> int:
        """Return how often any node that was forgotten had registered, at most."""
        ...

    async def history(self) -> History:
        """Return where the store is in its history."""
        ...

    async def enter_safe_mode(self, why: str) -> None:
        """Refuse every change from now on, with ``SafeMode``; nodes may register."""
        ...

    async def restore(self, op: str, restore: Restore) -> Result:
        """Write records as they were. BAD_STATE out of SAFE MODE, LEASE as in ``apply``."""
        ...

    async def leave_safe_mode(self, op: str, leave: Leave) -> Result:
        """Replace all owners, set timers, and take changes again; refusals as in ``restore``."""
        ...
