"""What happens in a simulation, and when."""

import heapq
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from frenzy_shared.domain.ids import JobId, NodeId

NO_JOB: Final = JobId("")
NO_NODE: Final = NodeId("")


class Kind(IntEnum):
    """Kinds of events; at one moment they happen in this order."""

    FINISH = 0
    MOVE = 1
    OOM = 2
    FAIL = 3
    REPAIR = 4
    ARRIVE = 5
    ASK_AGAIN = 6
    TICK = 7


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One event. ``number`` makes the order total; ``generation`` voids ends of old placements."""

    at_ms: int
    kind: Kind
    number: int
    job: JobId = NO_JOB
    node: NodeId = NO_NODE
    generation: int = 0


class Agenda:
    """Events by time."""

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[Event] = []
        self._count = 0

    def add(
        self,
        at_ms: int,
        kind: Kind,
        *,
        job: JobId = NO_JOB,
        node: NodeId = NO_NODE,
        generation: int = 0,
    ) -> None:
        """Plan an event."""
        self._count += 1
        heapq.heappush(self._heap, Event(at_ms, kind, self._count, job, node, generation))

    def next_ms(self) -> int | None:
        """Return the time of the next event, None when there is none."""
        return self._heap[0].at_ms if self._heap else None

    def pop_all(self, at_ms: int) -> list[Event]:
        """Remove and return what happens at a moment, in order."""
        due: list[Event] = []
        while self._heap and self._heap[0].at_ms == at_ms:
            due.append(heapq.heappop(self._heap))
        return due
