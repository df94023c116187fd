"""A job's record: what the store holds about one job, without its specification."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from frenzy_shared.domain.continuation import PlanShape
from frenzy_shared.domain.ids import JobId, ProjectName
from frenzy_shared.domain.placement import Placement


class JobState(StrEnum):
    """Where a job is in its life; the only public vocabulary of states."""

    SUBMITTED = "SUBMITTED"
    QUEUED = "QUEUED"
    RESERVED = "RESERVED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
PLACED: Final = frozenset(
    {JobState.RESERVED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING}
)


class PendingReason(StrEnum):
    """Why a job is not running, by precedence: the first that holds is the dominant one."""

    NO_FEASIBLE_PLAN = "NoFeasiblePlan"
    QUOTA_EXCEEDED = "QuotaExceeded"
    HELD = "Held"
    DEPENDENCY_NOT_MET = "DependencyNotMet"
    BACKOFF_AFTER_FAILURE = "BackoffAfterFailure"
    REPLANNING = "Replanning"
    WAITING_FOR_NODES = "WaitingForNodes"
    CAPACITY_FRAGMENTED = "CapacityFragmented"
    WAITING_FOR_PREEMPTED_JOBS = "WaitingForPreemptedJobs"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"


class StopReason(StrEnum):
    """Why an attempt ends: what STOPPING carries, and where the job goes from there."""

    COMPLETED = "Completed"  # -> SUCCEEDED
    CANCELLED_BY_USER = "ByUser"  # -> CANCELLED
    CANCELLED_BY_POLICY = "ByPolicy"  # -> CANCELLED
    SUPERSEDED = "Superseded"  # -> CANCELLED
    PREEMPTED = "Preempted"  # -> QUEUED
    DRAINED = "Drained"  # -> QUEUED
    LAUNCH_REFUSED = "LaunchRefused"  # -> QUEUED with backoff
    START_TIMEOUT = "StartTimeout"  # -> QUEUED with backoff, FAILED when retries are used up
    NODE_LOST = "NodeLost"  # -> QUEUED
    CUDA_OUT_OF_MEMORY = "CudaOutOfMemory"  # -> SUBMITTED (re-plan), FAILED when bounded out
    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    USER_CODE_ERROR = "UserCodeError"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    COMMUNICATION_ERROR = "CommunicationError"
    CHECKPOINT_ERROR = "CheckpointError"
    DATA_ERROR = "DataError"
    LOG_QUOTA_EXCEEDED = "LogQuotaExceeded"
    DISK_QUOTA_EXCEEDED = "DiskQuotaExceeded"
    NO_FEASIBLE_PLAN = "NoFeasiblePlan"
    INTERNAL_ERROR = "InternalError"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """How one rank of one attempt ended, as the node agent saw it.

    ``exit_code`` follows the shell (negative signal numbers are kept negative, as in
    ``subprocess``); ``None`` means that the shim was lost and nobody knows.
    """

    rank: int
    exit_code: int | None = None
    reason: StopReason
    message: str = ""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    tokens_per_second: float | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The next attempt of a running job, made ready on other devices while the job trains.

    ``shape`` is of its plan, ``why`` the reason for the move. ``prepared`` / ``warm`` / ``clean``
    name its nodes whose evidence is in. One that is ``dropped`` (the text says why) will never
    take over; it is kept until the job's next attempt, which must have a higher number.
    """

    attempt: int
    placement: Placement
    shape: PlanShape | None = None
    why: str = ""
    placed_ms: int = 0
    prepared: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    rendezvous: str = ""
    dropped: str = ""
    dropped_ms: int = 0

    @property
    def ready(self) -> bool:
        """Tell whether its ranks wait on every node for the word to go on."""
        return not self.dropped and set(self.placement.nodes) <= set(self.warm)

    @property
    def gone(self) -> bool:
        """Tell whether it holds nothing any more."""
        return set(self.placement.nodes) <= set(self.clean)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """The versioned record of one job. Every change is one transition and adds 1 to ``version``.

    ``owned_devices`` counts devices whose ownership the job still holds; the store keeps it and
    refuses any terminal or waiting state while it is above zero.
    ``prepared`` / ``started`` / ``exited`` / ``clean`` name the nodes whose evidence for the
    current attempt is in. Times are wall-clock milliseconds.
    """

    id: JobId
    project: ProjectName
    name: str
    state: JobState
    version: int
    attempt: int = 0
    priority: int = 50
    sequence: int = 0  # arrival order across the cluster
    reason: str = ""  # PendingReason or StopReason value; "" when there is nothing to explain
    message: str = ""
    submitted_by: str = ""
    spec_sha256: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    placement: Placement | None = None
    owned_devices: int = 0
    prepared: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    exited: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()  # nodes whose devices this attempt gave up
    rendezvous: str = ""  # "host:port" bound by rank 0's node for this attempt
    outcomes: tuple[RankOutcome, ...] = ()
    retries: int = 0  # attempts that ended in failure and were requeued
    oom_retries: int = 0
    refusals: int = 0  # launches refused in a row: what the backoff grows with
    preemptions: int = 0  # attempts stopped for another job or for a better plan
    not_before_ms: int = 0
    force_queue: bool = False  # wait for new nodes instead of failing without a feasible plan
    last_step: int | None = None
    last_loss: float | None = None
    checkpoint_step: int | None = None  # the step that the next attempt resumes from
    shape: PlanShape | None = None  # of the latest attempt's plan
    checkpoint_shape: PlanShape | None = None  # of the plan that ``checkpoint_step`` was made under
    placed_ms: int | None = None  # when the latest attempt got its devices
    stopping_ms: int | None = None  # when it was told to make way; until it trains again
    launch_ms: int | None = None  # measured: from the devices to the first training step
    save_ms: int | None = None  # measured: from the order to stop until every device was free
    move_ms: int | None = None  # measured: from the order to stop to a warm successor's first step
    successor: Successor | None = None  # the next attempt, made ready while this one trains
    attained_device_ms: int = 0  # devices x time of the attempts that are over
    depends_on: tuple[JobId, ...] = ()  # jobs that must have succeeded before it starts
    after: tuple[JobId, ...] = ()  # jobs that must be over before it starts, however they ended
    held_by: str = ""  # who holds it back from starting; "" when nobody does
    created_ms: int = 0
    updated_ms: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None
    traceparent: str = ""
