"""What can happen to a placed job: evidence from nodes, lost nodes, timers, other jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from frenzy_shared.domain.job import RankOutcome


class TimerKind(StrEnum):
    """Timers of a job; the id is ``<kind>:<job>:<attempt>``."""

    PREPARE = "prepare"
    WARM = "warm"
    GO = "go"
    FIRST_REPORT = "first_report"
    STOP = "stop"
    BACKOFF = "backoff"
    MAX_DURATION = "max_duration"
    REPLAN = "replan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A node checked its devices and is ready to start; rank 0's node names the rendezvous."""

    node: str
    rendezvous: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """A node's ranks of a successor wait for the word to train."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A node started its ranks."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The job trained up to ``step``."""

    step: int
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """The checkpoint of ``step`` is complete and durable."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """All ranks of a node ended."""

    node: str
    outcomes: tuple[RankOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Nothing of the attempt runs on the node, and nothing ever will: its tombstone is written."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A node will not run the attempt."""

    node: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone:
    """A node stopped answering, or came back without the attempt; ``why`` is a sentence."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFenced:
    """A lost node was silent for so long that it must have killed its ranks.

    ``confirmed``: somebody looked, and the machine is dead; its devices need no quarantine.
    """

    node: str
    confirmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrained:
    """A node's time to drain is up: what runs there must go on elsewhere; ``why`` is a sentence."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """The policy stops a running job; ``why`` names whom for and the numbers."""

    why: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerDue:
    """A timer of the attempt fired."""

    kind: TimerKind


NodeEvidence = (
    Prepared | Warm | Started | Exited | Clean | Refused | NodeGone | NodeFenced | NodeDrained
)
Evidence = NodeEvidence | Progressed | Checkpointed
Fact = Evidence | TimerDue | Displaced


def timer_id(kind: TimerKind, job: str, attempt: int) -> str:
    """Return the id of one attempt's timer."""
    return f"{kind}:{job}:{attempt}"
