"""What goes into a scheduling cycle and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.plan import RefusedPlan, ResourcePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One waiting job with the plans that MARP made for it, best first.

    ``version`` is the record's version that the plans were read with. A job whose
    ``not_before_ms`` is ahead of the cycle's time is not tried.
    """

    id: JobId
    sequence: int  # arrival order
    plans: tuple[ResourcePlan, ...]
    refused: tuple[RefusedPlan, ...] = ()
    version: int = 0
    not_before_ms: int = 0
    message: str = ""  # what the record says about the last attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Give these devices to the job."""

    job: JobId
    version: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Leave the job waiting. ``pending.explain`` says why; that costs time only when asked for.

    ``position`` counts from 1 over the jobs that still wait. ``after`` is the cluster as this
    cycle leaves it; ``behind`` names the job whose turn comes first under a strict order.
    """

    job: QueuedJob
    position: int
    after: Snapshot = field(compare=False, repr=False)
    behind: JobId | None = None


Decision = Place | Hold


class Policy(Protocol):
    """A strategy: which jobs are tried, in which order, and which devices each gets."""

    @property
    def name(self) -> str:
        """Return the name that settings and the command line use."""
        ...

    @property
    def strict(self) -> bool:
        """Tell whether a job that cannot be placed blocks all that arrived after it."""
        ...

    def order(self, queue: Sequence[QueuedJob]) -> Sequence[QueuedJob]:
        """Return the queue in the order in which jobs are tried."""
        ...

    def place(self, job: QueuedJob, snapshot: Snapshot) -> Placement | None:
        """Choose devices that are idle in ``snapshot``, all of one plan; None when none fits."""
        ...
