"""What goes into a scheduling cycle and what comes out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from frenzy_scheduler.core.admission import Ledger
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.core.urgency import NORMAL, turn_ms
from frenzy_shared.domain.ids import JobId, NodeId, ProjectName
from frenzy_shared.domain.placement import Placement, Unplaceable
from frenzy_shared.domain.plan import RefusedPlan, ResourcePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known of a job's past and of its rest.

    ``steps_left`` is None when nobody knows how long the job is. ``restart_s`` is the price of
    stopping a running job and starting it elsewhere: checkpoint, start, restore; ``move_s`` that
    of going on with devices that are idle and none of its own, where its next attempt gets ready
    while it trains; None where that is not done for the job. ``step_s`` is
    what a step takes on the devices that a running job holds, None before it was measured.
    """

    steps_left: float | None = None
    step_s: float | None = None
    attained_device_s: float = 0.0  # device-seconds that the job has had
    arrived_ms: int = 0
    restart_s: float = 0.0
    move_s: float | None = None


NEW: Final = Progress()
_DEFAULT: Final = ProjectName("default")
_OVERDUE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One waiting job with the plans that MARP made for it, best first.

    ``version`` is the record's version that the plans were read with. A job whose
    ``not_before_ms`` is ahead of the cycle's time is not tried, nor one that is ``blocked`` for a
    reason that no devices change. ``nodes`` are all it may run on; None: any.
    """

    id: JobId
    sequence: int  # arrival order
    plans: tuple[ResourcePlan, ...]
    refused: tuple[RefusedPlan, ...] = ()
    version: int = 0
    not_before_ms: int = 0
    message: str = ""  # what the record says about the last attempt
    progress: Progress = NEW
    project: ProjectName = _DEFAULT
    priority: int = NORMAL
    standing: float = 1.0  # of the project in the fair share
    blocked: Unplaceable | None = None
    nodes: frozenset[NodeId] | None = None
    turn_ms: float = field(init=False)  # its place in line: see ``urgency``

    def __post_init__(self) -> None:
        """Find the place in line once: queues are sorted by it again and again."""
        turn = turn_ms(self.progress.arrived_ms, self.priority, self.standing)
        object.__setattr__(self, "turn_ms", turn)

    def eligible(self, now_ms: int) -> bool:
        """Tell whether devices are all that it lacks."""
        return bool(self.plans) and self.not_before_ms <= now_ms and self.blocked is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """One job that holds devices. ``plans`` are all it could run with, its own among them."""

    id: JobId
    sequence: int
    plans: tuple[ResourcePlan, ...]
    placement: Placement
    version: int = 0
    placed_ms: int = 0  # when it got the devices that it holds
    preemptible: bool = True
    progress: Progress = NEW
    project: ProjectName = _DEFAULT
    priority: int = NORMAL
    standing: float = 1.0  # of the project in the fair share
    nodes: frozenset[NodeId] | None = None  # all it may run on; None: any

    @property
    def turn_ms(self) -> float:
        """Return its place in line: see ``urgency``."""
        return turn_ms(self.progress.arrived_ms, self.priority, self.standing)

    @property
    def plan(self) -> ResourcePlan | None:
        """Return the plan that it runs with; None when ``plans`` have been renewed since."""
        return next((plan for plan in self.plans if plan.id == self.placement.plan), None)

    @property
    def changeable(self) -> bool:
        """Tell whether it may be stopped: not while nobody knows what it runs with."""
        return self.preemptible and self.plan is not None


def seconds_left(progress: Progress, plan: ResourcePlan) -> float:
    """Predict how long a job trains from now on with ``plan``, start-up of the ranks aside."""
    if progress.steps_left is None:
        return plan.speed.total_s
    return progress.steps_left * plan.speed.step_s


def holds_for_s(job: RunningJob, plan: ResourcePlan, now_ms: int) -> float:
    """Predict how long a job that runs with ``plan`` still holds its devices.

    Measured steps count more than predicted ones. A job of unknown length that is older than
    predicted is expected to need a fifth of its age more.
    """
    progress = job.progress
    if progress.steps_left is not None:
        step_s = plan.speed.step_s if progress.step_s is None else progress.step_s
        return progress.steps_left * step_s
    age_s = max(now_ms - job.placed_ms, 0) / 1000
    return max(plan.speed.total_s - age_s, age_s * _OVERDUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Give these devices to the job."""

    job: JobId
    version: int
    placement: Placement


@dataclass(slots=True, kw_only=True)  # not frozen: that triples the price of a long queue
class Hold:
    """Leave the job waiting. ``pending.explain`` says why; that costs time only when asked for.

    ``position`` counts from 1 over the jobs that still wait. ``after`` is the cluster as this
    cycle leaves it, ``ledger`` the projects' quotas; ``behind`` names the job whose turn comes
    first under a strict order, and ``reserved_for`` the one whose start idle devices are kept for.
    """

    job: QueuedJob
    position: int
    after: Snapshot = field(compare=False, repr=False)
    ledger: Ledger = field(default_factory=Ledger, compare=False, repr=False)
    behind: JobId | None = None
    reserved_for: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Take the devices of a running job; it checkpoints and waits again."""

    job: JobId
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Stop a running job at a checkpoint and go on with another plan on these devices."""

    job: JobId
    version: int
    placement: Placement


Decision = Place | Preempt | Resize | Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that an ``Allocator`` looks at. ``running`` jobs hold devices of ``snapshot``."""

    queue: Sequence[QueuedJob]  # those that may start now and have a plan
    running: Sequence[RunningJob]
    snapshot: Snapshot
    now_ms: int
    ledger: Ledger = field(default_factory=Ledger)


Rank = Callable[[QueuedJob], tuple[float | str, ...]]


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

    @property
    def rank(self) -> Rank:
        """Return what jobs are tried by, lowest first; it stays the same while a job waits."""
        ...

    def place(self, job: QueuedJob, snapshot: Snapshot) -> Placement | None:
        """Choose devices that are idle in ``snapshot``, all of one plan; None when none fits."""
        ...


@runtime_checkable
class Allocator(Protocol):
    """A strategy that looks at all jobs at once and says which plan each should run with.

    ``cycle`` chooses the devices, in the order of the answer: best fit, gangs whole. Where a plan
    does not fit the nodes, a running job stays where it is if it can, and a waiting one waits.
    """

    @property
    def name(self) -> str:
        """Return the name that settings and the command line use."""
        ...

    @property
    def preemptive(self) -> bool:
        """Tell whether running jobs may be stopped, moved or resized."""
        ...

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Return the plan of every job that should run, in the order in which to place them.

        A running job that is left out is preempted, unless this strategy is not preemptive.
        """
        ...


Strategy = Policy | Allocator
