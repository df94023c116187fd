"""A line of waiting jobs kept from one decision to the next, so that an event costs what it moves.

``cycle`` looks at everybody who waits. But whoever was refused stays refused until devices of a
kind that it could use come free, and needs no look before. ``Standing`` keeps jobs in line by the
kinds and the fewest devices that they could start with, and tries only those that are new and
those whom what came free may serve. It places exactly whom ``cycle`` would: same jobs, same
devices, same order. For policies that place one job after the other, without quotas.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Final

from frenzy_scheduler.core.cycle import give_devices
from frenzy_scheduler.core.decisions import Place, Policy, QueuedJob
from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.ids import JobId

_Turn = tuple[tuple[float | str, ...], JobId]  # rank, job
_EVERYBODY: Final = ""  # the kind under which a strict policy has all jobs in one line


class Standing:
    """Who waits, and what has changed since everybody was last refused.

    The owner reports every change: ``add`` and ``remove`` of waiting jobs, ``freed`` devices, and
    ``rebuilt`` when nodes came or went.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._jobs: dict[JobId, QueuedJob] = {}
        self._lines: dict[str, dict[int, list[_Turn]]] = {}  # kind -> fewest devices -> by rank
        self._new: set[JobId] = set()
        self._grown: set[str] = set()
        self._backing_off: list[tuple[int, JobId]] = []

    def add(self, job: QueuedJob) -> None:
        """Put a job in line, or back in line as it is now."""
        self.remove(job.id)
        if job.plans and job.blocked is None:
            self._jobs[job.id] = job
            heapq.heappush(self._backing_off, (job.not_before_ms, job.id))

    def remove(self, job: JobId) -> None:
        """Take a job out of the line, if it is there."""
        known = self._jobs.pop(job, None)
        if known is None:
            return
        self._new.discard(job)
        for kind, count in self._needs(known).items():
            turn, line = (self._policy.rank(known), job), self._lines.get(kind, {}).get(count, [])
            place = bisect_left(line, turn)
            if place < len(line) and line[place] == turn:  # not while it backs off
                del line[place]

    def freed(self, kind: str) -> None:
        """Note that devices of a kind have become idle."""
        self._grown.add(kind)

    def rebuilt(self) -> None:
        """Note that nodes have changed: everybody deserves another look."""
        self._grown.update(self._lines)

    def decide(self, snapshot: Snapshot, now_ms: int) -> list[Place]:
        """Place whoever fits, and take them out of the line. ``snapshot`` is left as it was.

        Whoever could not start after all has to be added again.
        """
        self._enter(now_ms)
        statement, places = Statement(snapshot), list[Place]()
        for job in self._candidates(snapshot):
            placement = give_devices(self._policy, job, snapshot, statement)
            if placement is not None:
                places.append(Place(job=job.id, version=job.version, placement=placement))
            elif self._policy.strict:
                break
        statement.rollback()
        self._new.clear()
        self._grown.clear()
        for place in places:
            self.remove(place.job)
        return places

    def _enter(self, now_ms: int) -> None:
        """Let jobs into their lines whose back-off is over."""
        while self._backing_off and self._backing_off[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._backing_off)
            job = self._jobs.get(name)
            if job is None or job.not_before_ms != due_ms or name in self._new:
                continue  # it has left, or come again since
            self._new.add(name)
            for kind, count in self._needs(job).items():
                line = self._lines.setdefault(kind, {}).setdefault(count, [])
                insort(line, (self._policy.rank(job), name))

    def _candidates(self, snapshot: Snapshot) -> Iterator[QueuedJob]:
        """Yield by rank whoever may fit. The caller takes devices of ``snapshot`` meanwhile."""
        ahead = [(line, kind, count) for kind, count, line in self._open_lines(snapshot) if line]
        heads = [(line[0], number, 0) for number, (line, _, _) in enumerate(ahead)]
        heapq.heapify(heads)
        last: JobId | None = None
        while heads:
            (_, name), number, position = heads[0]
            line, kind, count = ahead[number]
            if count > snapshot.idle(kind):  # and there will not be more
                heapq.heappop(heads)
                continue
            if position + 1 < len(line):
                heapq.heapreplace(heads, (line[position + 1], number, position + 1))
            else:
                heapq.heappop(heads)
            if name != last:  # a job stands in a line of each kind
                last = name
                yield self._jobs[name]

    def _open_lines(self, snapshot: Snapshot) -> Iterator[tuple[str, int, list[_Turn]]]:
        if self._policy.strict:
            yield _EVERYBODY, 0, self._lines.get(_EVERYBODY, {}).get(0, [])
            return
        for kind in self._grown:
            for count, line in self._lines.get(kind, {}).items():
                if count <= snapshot.idle(kind):
                    yield kind, count, line
        new = sorted((self._policy.rank(self._jobs[name]), name) for name in self._new)
        yield _EVERYBODY, 0, new

    def _needs(self, job: QueuedJob) -> Mapping[str, int]:
        """Return, by kind, the fewest devices with which a job could start."""
        if self._policy.strict:
            return {_EVERYBODY: 0}
        least: dict[str, int] = {}
        for plan in job.plans:
            least[plan.kind] = min(plan.device_count, least.get(plan.kind, plan.device_count))
        return least
