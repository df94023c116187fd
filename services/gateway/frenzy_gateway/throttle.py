"""How fast each project may submit through this gateway, so that none holds up the others.

Each replica counts for itself: no call to the store, and n gateways let a project do n times as
much, which they also can carry.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.errors import TooManyRequests

LONGEST_WAIT_S: Final = 30.0  # that is asked of a client
_REMEMBERED: Final = 1024  # projects, before those that rest are forgotten; and senders
Sender = tuple[str, bytes]  # a request's Authorization and query: whose project was meant


@dataclass(slots=True)
class _Share:
    """One project's part. ``tokens`` as of ``time``; below 0 after more than there was."""

    tokens: float
    time: float
    slots: asyncio.Semaphore
    present: int = 0  # requests that have a slot or wait for one
    until: float = 0.0  # when the last one that was told to come again is due


@dataclass(kw_only=True)
class Throttle:
    """A bucket of tokens for each project, and slots for what is worked on at a time.

    ``rate`` in jobs per second, 0: any; ``burst`` in jobs that may come at once, which also bounds
    how many wait for one of ``slots``.
    """

    clock: Clock
    rate: float
    burst: int
    slots: int
    _shares: dict[ProjectName, _Share] = field(default_factory=dict[ProjectName, _Share])
    _refused: dict[Sender, ProjectName] = field(default_factory=dict["Sender", ProjectName])

    def admit(self, project: ProjectName, sender: Sender) -> None:
        """Take a token for one job, before anything is done for it.

        Raises:
            TooManyRequests: the project has to wait, and for how long.
        """
        if not self.rate:
            return
        share = self._share(project)
        if (refusal := self._refusal(project, share)) is not None:
            if len(self._refused) >= _REMEMBERED:
                self._refused.clear()
            self._refused[sender] = project
            raise refusal
        share.tokens -= 1

    def still_refused(self, sender: Sender) -> TooManyRequests | None:
        """Return the refusal of a sender who was refused before and whose project still waits.

        It costs next to nothing: a storm's requests are not looked at any further.
        """
        project = self._refused.get(sender)
        if project is None:
            return None
        refusal = self._refusal(project, self._share(project))
        if refusal is None:
            del self._refused[sender]
        return refusal

    def charge(self, project: ProjectName, jobs: int) -> None:
        """Take tokens for more jobs of a request that was admitted; later ones wait the longer."""
        if self.rate:
            self._share(project).tokens -= jobs

    @asynccontextmanager
    async def slot(self, project: ProjectName) -> AsyncIterator[None]:
        """Wait for a slot of the project, first come first served, and hold it."""
        share = self._share(project)
        share.present += 1
        try:
            async with share.slots:
                yield
        finally:
            share.present -= 1

    def _refusal(self, project: ProjectName, share: _Share) -> TooManyRequests | None:
        if share.tokens >= 1:
            return None
        return TooManyRequests(
            f"project {project!r} submits faster than {self.rate:g} jobs a second",
            suggestions=("wait as long as Retry-After says", "submit many jobs as one array"),
            retry_after_s=self._turn_s(share),
        )

    def _share(self, project: ProjectName) -> _Share:
        """Return a project's share as it is now."""
        now = self.clock.monotonic()
        share = self._shares.get(project)
        if share is None:
            self._forget(now)
            share = self._shares[project] = _Share(
                tokens=self.burst, time=now, slots=asyncio.Semaphore(self.slots)
            )
        share.tokens = self._tokens(share, now)
        share.time = now
        return share

    def _tokens(self, share: _Share, now: float) -> float:
        return min(self.burst, share.tokens + (now - share.time) * self.rate)

    def _turn_s(self, share: _Share) -> float:
        """Give whoever has to wait a turn of its own: all at once would be refused again."""
        first = share.time + (1 - share.tokens) / self.rate
        due = max(first, share.until + 1 / self.rate)
        share.until = min(due, share.time + LONGEST_WAIT_S)
        return share.until - share.time

    def _forget(self, now: float) -> None:
        """Drop projects that a new share would not tell from the old."""
        if len(self._shares) >= _REMEMBERED:
            self._shares = {
                name: share
                for name, share in self._shares.items()
                if share.present or self._tokens(share, now) < self.burst
            }
