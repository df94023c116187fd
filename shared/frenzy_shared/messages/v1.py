"""Version 1 of every message that is not an event: node, evidence, logs, telemetry, RPC."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.continuation import PlanShape
from frenzy_shared.domain.job import RankOutcome
from frenzy_shared.domain.plan import PlanSet, ResourcePlan
from frenzy_shared.messages.answers import Basis, Eta, QueueEntry, WouldStart
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.spec import JobSpec

Name = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]


# -- node <-> control plane -------------------------------------------------------------------


class Phase(StrEnum):
    """What a node must do about one attempt."""

    PREPARE = "prepare"
    GO = "go"
    STOP = "stop"


class AttemptPhase(StrEnum):
    """Where an attempt is on a node, as its journal says."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    STARTED = "started"
    STOPPING = "stopping"
    EXITED = "exited"
    CLEAN = "clean"
    REFUSED = "refused"


class HeldAttempt(Wire):
    """One attempt that a node still knows about, and the devices of its ranks there.

    ``stuck`` says which of its processes SIGKILL does not end; "" where all goes well.
    """

    job: Name
    attempt: Annotated[int, Field(ge=1)]
    phase: AttemptPhase
    devices: tuple[str, ...] = ()
    stuck: str = ""


class Heartbeat(Wire):
    """A node's full inventory, every few seconds. ``epoch`` 0 asks for registration.

    ``checkpoints`` are some of the jobs whose checkpoints lie here, to learn which are over.
    """

    node: Name
    epoch: Annotated[int, Field(ge=0)]
    boot_id: str
    address: str
    devices: tuple[Device, ...]
    attempts: tuple[HeldAttempt, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    host_memory_bytes: Annotated[int, Field(ge=0)] = 0  # 0: unknown
    checkpoints: tuple[Name, ...] = ()

    @property
    def held(self) -> tuple[HeldAttempt, ...]:
        """Return the attempts of which something is left on the node."""
        return tuple(one for one in self.attempts if one.phase is not AttemptPhase.CLEAN)


class RankAssignment(Wire):
    """One rank that this node runs, and the device it runs on."""

    rank: Annotated[int, Field(ge=0)]
    local_rank: Annotated[int, Field(ge=0)]
    device: str


class DesiredAttempt(Wire):
    """What a node must do about one attempt. Repeating it changes nothing.

    ``rendezvous`` ("host:port") is set for GO. ``spec`` and ``plan`` are set for PREPARE and GO.
    ``warm`` (with PREPARE): start the ranks, but let them wait before their first step; GO comes
    when the attempt before has ended. ``continues`` is then the shape that it trains under.
    ``fence_after_s`` is the silence after which the control plane counts on the ranks being gone
    (and then waits for a margin): a node whose own limit is longer must use this one.
    """

    job: Name
    project: Name
    job_number: int = 0  # in order of arrival; 0: from a control plane that does not say
    attempt: Annotated[int, Field(ge=1)]
    phase: Phase
    reason: str = ""
    grace_s: float = 30.0
    world_size: int = 0
    ranks: tuple[RankAssignment, ...] = ()
    hosts_rank_zero: bool = False
    rendezvous: str = ""
    spec: JobSpec | None = None
    plan: ResourcePlan | None = None
    resume_step: int | None = None  # the checkpoint that the store vouches for
    fence_after_s: Annotated[float, Field(gt=0)] | None = None
    warm: bool = False
    continues: PlanShape | None = None
    traceparent: str = ""


class DesiredSet(Wire):
    """Everything a node must run or stop. What it holds and is not listed, it must stop.

    ``fenced``: the sender's epoch is not the present one; it must register again (its own
    restart) or exit (another agent has its identity). ``over`` says of the jobs that a heartbeat
    asked about when they ended, 0 for one that nobody knows; those that are not over are left out.
    """

    node: Name
    epoch: int
    fenced: bool = False
    complete: bool = True  # False for a push that lists only some attempts
    attempts: tuple[DesiredAttempt, ...] = ()
    over: dict[Name, int] = Field(default_factory=dict)


# -- evidence ---------------------------------------------------------------------------------


class EvidenceKind(StrEnum):
    """What physically happened."""

    PREPARED = "prepared"
    WARM = "warm"  # its ranks wait for the word to train
    STARTED = "started"
    EXITED = "exited"
    CLEAN = "clean"
    REFUSED = "refused"
    PROGRESSED = "progressed"
    CHECKPOINTED = "checkpointed"
    INVENTORY = "inventory"


class Evidence(Wire):
    """One physical fact from a node's journal; message id ``<node>:<sequence>``.

    Per kind: PREPARED has ``rendezvous`` when the node hosts rank 0; REFUSED has ``reason`` and
    ``message``; EXITED has ``outcomes`` of this node's ranks; CHECKPOINTED has
    ``step``; PROGRESSED (rate-limited) has ``step`` and ``loss``.
    """

    kind: EvidenceKind
    node: Name
    epoch: int
    sequence: Annotated[int, Field(ge=1)]
    time_ms: int
    job: str = ""
    project: str = ""
    attempt: int = 0
    rendezvous: str = ""
    reason: str = ""
    message: str = ""
    outcomes: tuple[RankOutcome, ...] = ()
    step: int | None = None
    loss: float | None = None
    traceparent: str = ""


# -- logs and telemetry -----------------------------------------------------------------------


class LogLine(Wire):
    """One line of a rank. ``number`` counts from 1 over both of the rank's output streams."""

    number: Annotated[int, Field(ge=1)]
    time_ms: int
    output: Literal["stdout", "stderr"]
    text: str


class LogBatch(Wire):
    """Lines of one rank of one attempt, in order; message id ``<job>:<attempt>:<rank>:<first>``."""

    job: Name
    attempt: int
    rank: int
    node: Name
    lines: tuple[LogLine, ...]


class TrainingPoint(Wire):
    """What one rank reports after a step. Bytes are torch's peaks since the start."""

    rank: int
    attempt: int
    step: int
    time_ms: int
    loss: float | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None


class TelemetryBatch(Wire):
    """Training points of one job from one node."""

    job: Name
    project: Name
    points: tuple[TrainingPoint, ...]


# -- RPC --------------------------------------------------------------------------------------


class PlanRequest(Wire):
    """Ask MARP for plans on the present cluster. Nothing is stored."""

    spec: JobSpec


class PlanReply(Wire):
    """MARP's answer; exactly one of ``plans`` and ``error`` is set."""

    plans: PlanSet | None = None
    error_code: str = ""
    error: str = ""
    suggestions: tuple[str, ...] = ()


class ExplainRequest(Wire):
    """Ask the scheduler why a job is where it is."""

    job: Name


class ExplainReply(Wire):
    """The scheduler's answer."""

    state: str = ""
    reason: str = ""
    message: str = ""
    nearest: str = ""
    position: int | None = None
    error: str = ""
    would_start: tuple[WouldStart, ...] = ()
    eta: Eta | None = None
    basis: Basis | None = None


class QueueRequest(Wire):
    """Ask the scheduler who waits. ``project`` None: everybody; positions are the same."""

    project: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class QueueReply(Wire):
    """The first waiting jobs in the order of ``policy``; ``total`` counts all of them."""

    policy: str = ""
    total: int = 0
    entries: tuple[QueueEntry, ...] = ()
    basis: Basis | None = None
    error: str = ""


class RecordRequest(Wire):
    """Ask the leading scheduler for its last cycles."""

    cycles: Annotated[int, Field(ge=1, le=100)] = 1


class RecordReply(Wire):
    """A recording: JSON, compressed with gzip, in base64; or why there is none."""

    recording: str = ""
    error: str = ""


class ReconcileRequest(Wire):
    """Ask the leader what differs between the store, its history and the nodes, in SAFE MODE.

    ``dead`` nodes are switched off, on the word of the administrator ``by``.
    """

    apply: bool = False
    dead: tuple[str, ...] = ()
    by: str = ""


class Difference(Wire):
    """One thing that the store says wrongly: what it says, and what becomes of it."""

    entity: str  # "job:<id>" | "node:<id>"
    store: str
    repair: str


class Reconciliation(Wire):
    """What differs. ``applied``: the store was put right and takes changes again.

    ``silent`` names nodes that have not said what they hold; ``count`` counts all differences,
    ``differences`` shows the first of them. ``safe_mode`` is why the store is in SAFE MODE, ""
    when it is not.
    """

    safe_mode: str = ""
    count: int = 0
    differences: tuple[Difference, ...] = ()
    silent: tuple[str, ...] = ()
    applied: bool = False
    refused: str = ""  # why it was not applied although that was asked for


class ReconcileReply(Wire):
    """The leader's answer; exactly one of the two is set."""

    result: Reconciliation | None = None
    error: str = ""


class SecretsRequest(Wire):
    """Ask for the secrets of an attempt that is about to start; the subject says which node."""

    job: Name
    attempt: Annotated[int, Field(ge=1)]


class SecretsReply(Wire):
    """Values by environment variable, or why there are none. Never stored, never logged.

    ``permanent``: no node can help, and no later try.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    values: dict[str, str] = Field(default_factory=dict, repr=False)
    error: str = ""
    permanent: bool = False


REGISTRY: dict[str, type[Wire]] = {
    "heartbeat": Heartbeat,
    "desired_set": DesiredSet,
    "evidence": Evidence,
    "log_batch": LogBatch,
    "telemetry_batch": TelemetryBatch,
    "plan_request": PlanRequest,
    "plan_reply": PlanReply,
    "explain_request": ExplainRequest,
    "explain_reply": ExplainReply,
    "queue_request": QueueRequest,
    "queue_reply": QueueReply,
    "record_request": RecordRequest,
    "record_reply": RecordReply,
    "reconcile_request": ReconcileRequest,
    "reconcile_reply": ReconcileReply,
    "secrets_request": SecretsRequest,
    "secrets_reply": SecretsReply,
}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one registered message."""
    return REGISTRY[name].model_json_schema()
