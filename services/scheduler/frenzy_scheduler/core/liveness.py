"""Which nodes stopped answering, judged by one observer's own clock.

The observer never counts time in which it could not hear: before it began to watch, while it was
frozen, while its own connection was down, and while most nodes were silent at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from frenzy_shared.domain.cluster import NodeRecord, NodeState

_SERVING: Final = frozenset({NodeState.UP, NodeState.DRAINING})
_WATCHED: Final = frozenset(
    {NodeState.JOINING, NodeState.UP, NodeState.SUSPECT, NodeState.DRAINING}
)


class Judgement(StrEnum):
    """What silence makes of a node."""

    SUSPECT = "suspect"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A node that should change its state, and for how long it was surely silent."""

    node: NodeRecord
    judgement: Judgement
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts of one look. ``withheld`` names nodes that most others fell silent with."""

    verdicts: tuple[Verdict, ...]
    withheld: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Watch:
    """When each node was last heard, in seconds of the observer's monotonic clock."""

    suspect_after_s: float
    lost_after_s: float
    frozen_after_s: float  # a gap between two looks that means that the observer itself slept
    since: float
    _looked: float = field(init=False)
    _heard: dict[str, float] = field(init=False, default_factory=dict[str, float])
    _blames_self: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._looked = self.since

    def hear(self, node: str, now: float) -> None:
        """Note a heartbeat."""
        self._heard[node] = now

    def restart(self, now: float) -> None:
        """Begin to watch anew: what was missed until now counts for nobody."""
        self.since = now
        self._looked = now

    def silent_s(self, node: str, now: float) -> float:
        """Return for how long a node has surely been silent."""
        return now - max(self._heard.get(node, self.since), self.since)

    def attend(self, now: float) -> None:
        """Note that the observer is awake; after a gap that is too long it begins anew."""
        if now - self._looked > self.frozen_after_s:
            self.restart(now)
        self._looked = now

    def judge(self, nodes: Iterable[NodeRecord], now: float) -> Judged:
        """Return which nodes to call suspect or lost.

        When more than half of several nodes fell silent together, the observer suspects itself: it
        withholds LOST (which ends jobs) and keeps SUSPECT (which only keeps new work away). When
        it hears most of them again it watches anew: they do not all come back in one moment, and
        the last must not be lost for having been among the silent.
        """
        self.attend(now)
        watched = [node for node in nodes if node.state in _WATCHED]
        silent = [(node, self.silent_s(node.id, now)) for node in watched]
        lost = [pair for pair in silent if pair[1] >= self.lost_after_s]
        quiet = sum(silent_s >= self.suspect_after_s for _, silent_s in silent)
        blame_self = len(watched) > 1 and 2 * quiet > len(watched)
        relieved = self._blames_self and not blame_self
        self._blames_self = blame_self
        if relieved:
            self.restart(now)
            return Judged(verdicts=())
        verdicts = [
            Verdict(node=node, judgement=Judgement.LOST, silent_s=silent_s)
            for node, silent_s in ([] if blame_self else lost)
        ]
        named = {verdict.node.id for verdict in verdicts}
        verdicts += [
            Verdict(node=node, judgement=Judgement.SUSPECT, silent_s=silent_s)
            for node, silent_s in silent
            if silent_s >= self.suspect_after_s and node.state in _SERVING and node.id not in named
        ]
        withheld = tuple(node.id for node, _ in lost) if blame_self else ()
        return Judged(verdicts=tuple(verdicts), withheld=withheld)
