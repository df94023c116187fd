"""Remove bundles and data that no job names any more."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from frenzy_shared.blobs.port import CollectableBlobs
from frenzy_shared.domain.ids import JobId
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

_PAGE: Final = 500
_AT_ONCE: Final = 32
_SCHEME: Final = "blob:"


@dataclass(kw_only=True)
class Collection:
    """Collects blobs that no job in the store names, and that nobody asked for in a while.

    A blob goes when two looks in a row found it so. A store that has just lost its history names
    nothing either: by the second look it is in SAFE MODE, and then nothing is removed.
    """

    state: StateStore
    blobs: CollectableBlobs
    keep_s: float
    _found: frozenset[str] = field(default=frozenset())

    async def look(self) -> int:
        """Remove what was found at the last look and still is unneeded; return how many.

        Raises:
            Unavailable: the store is.
        """
        unused = frozenset(await self.blobs.unused(self.keep_s))
        if unused:
            unused -= await self._named()
        health = await self.state.health()
        if not health.reachable or health.safe_mode:
            self._found = frozenset()
            return 0
        due, self._found = unused & self._found, unused - self._found
        removed = 0
        for digest in sorted(due):
            removed += await self.blobs.remove(digest, unused_s=self.keep_s)
        if removed:
            log.info("removed %d blobs that no job names", removed)
        return removed

    async def _named(self) -> frozenset[str]:
        """Return every blob that a job's specification names, finished jobs' too."""
        named: set[str] = set()
        token = ""
        while True:
            page = await self.state.list_jobs(
                project=None, states=frozenset(), page_size=_PAGE, page_token=token, labels={}
            )
            jobs = [record.id for record in page.jobs]
            for start in range(0, len(jobs), _AT_ONCE):
                named |= await self._named_by(jobs[start : start + _AT_ONCE])
            token = page.next_token
            if not token:
                return frozenset(named)

    async def _named_by(self, jobs: list[JobId]) -> set[str]:
        specs = await asyncio.gather(*(self.state.spec(job) for job in jobs))
        return {digest for spec in specs for digest in _digests(spec)}


def _digests(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON holds anything
    """Yield the digests that any text of a specification names, whatever the field."""
    if isinstance(value, str) and value.startswith(_SCHEME):
        yield value.removeprefix(_SCHEME)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _digests(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _digests(inner)
