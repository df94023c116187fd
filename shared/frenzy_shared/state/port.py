"""What services may ask of the store. Every change goes through four functions.

Each mutating call carries an operation id: a call that runs twice with the same id (a lost reply
makes clients retry) takes effect once and answers the same both times. Only OK and EXISTS answers
are remembered; a refused call changed nothing and may be tried again with the same id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from frenzy_shared.domain.cluster import ClusterSnapshot, Device, NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId, ProjectName
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.domain.project import Project
from frenzy_shared.errors import Unavailable
from frenzy_shared.state.secrets import SecretStore

Json = Mapping[str, Any]


class StoreUnreachable(Unavailable):
    """The store's server does not answer at all: to callers as any other outage."""


class Status(StrEnum):
    """How the store answered a change."""

    OK = "OK"
    EXISTS = "EXISTS"  # submit: same idempotency key, same body
    CONFLICT = "CONFLICT"  # submit: same idempotency key, other body
    QUOTA = "QUOTA"  # submit: the project has its limit of unfinished jobs
    NOT_FOUND = "NOT_FOUND"
    STALE = "STALE"  # the expected version is not the present one
    FENCED = "FENCED"  # the expected attempt is not the present one
    BAD_STATE = "BAD_STATE"  # not in an allowed state, or it would finish while owning devices
    TAKEN = "TAKEN"  # a device to claim is owned, quarantined or unknown
    NODE_EPOCH = "NODE_EPOCH"  # a node re-registered, or is not UP
    LEASE = "LEASE"  # the caller does not hold the lease it said it holds
    SAFE_MODE = "SAFE_MODE"  # never returned: stores raise ``SafeMode``


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The store's answer. ``detail`` names the device, version or state that decided.

    ``id`` is the job for submit; ``version`` the entity's version after the call (0: unknown).
    """

    status: Status
    version: int = 0
    id: str = ""
    detail: str = ""
    epoch: int = 0  # register_node only

    @property
    def ok(self) -> bool:
        """Tell whether the change took effect now or earlier under the same operation id."""
        return self.status in (Status.OK, Status.EXISTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """One message to publish because of a change, stored by the same call.

    The relay publishes it as a CloudEvent of ``type`` on ``subject`` with message id
    ``<entity id>:<version>:<n>``; the entity's record after the change travels with it.
    """

    subject: str
    type: str  # short: "placed", "joined"; the relay adds the dev.frenzy.<entity>....v1 frame
    data: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Messages about a token or a project, and the record that travels with them.

    The record holds no secret; the store adds ``version``, the number of the decision.
    """

    record: Json
    messages: Sequence[OutboxMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Take one free device of an UP node for the attempt that this call opens."""

    node: NodeId
    device: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give one device up. Only a device whose owner is ``token`` changes; others are left alone.

    ``to`` is "" (free) or "!quarantine:<why>".
    """

    node: NodeId
    device: str
    token: str
    to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Something that must be looked at later. ``id`` is unique; setting it again moves it."""

    id: str  # "<kind>:<job or node>:<attempt or epoch>"
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimer:
    """A timer that is due. It is handed out again after 30 s unless a change clears it."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One atomic transition of one job or node: everything happens, or nothing.

    ``patch`` holds record fields by their domain names (JobRecord / NodeRecord); JSON-ready
    values. ``documents`` are whole side documents, replaced in the same call: keys
    "plans", "pending" (None deletes). ``version`` grows by 1 exactly when ``patch`` is not
    empty; documents alone (the pending reason) leave the version as it is.
    A job's ``owned_devices`` is kept by the store from claims and releases.
    When ``claims`` are given the owner token is ``<job>#<attempt>``, where the attempt is the one
    that the patch sets, or ``claim_attempt``: a successor's, beside the attempt that still runs.
    """

    entity: str  # "job:<id>" | "node:<id>"
    expect_version: int | None = None
    expect_attempt: int | None = None  # jobs
    expect_epoch: int | None = None  # nodes
    lease: tuple[str, str] | None = None  # (lease name, holder) that must be held
    allowed_from: frozenset[str] = frozenset()  # empty: any state
    patch: Json = field(default_factory=dict)
    documents: Mapping[str, Json | None] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    claim_attempt: int | None = None
    releases: Sequence[Release] = ()
    set_timers: Sequence[Timer] = ()
    clear_timers: Sequence[str] = ()
    outbox: Sequence[OutboxMessage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A validated job to accept. ``body_sha256`` tells a retry from a key used twice."""

    job: JobRecord  # state SUBMITTED, version 1; sequence and times are set by the store
    spec: Json
    idempotency_key: str
    body_sha256: str
    outbox: Sequence[OutboxMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistration:
    """An agent's announcement of itself. The store answers with the new epoch.

    The node becomes JOINING; devices not seen before become free; a device that vanished while
    owned keeps its owner. With a ``boot_id`` other than the stored one, quarantines
    ("!quarantine:lost ...") of its devices are lifted: a reboot proves that nothing runs.
    """

    node: NodeId
    boot_id: str
    address: str
    devices: tuple[Device, ...]
    labels: tuple[tuple[str, str], ...] = ()
    host_memory_bytes: int = 0
    least_epoch: int = 0  # a store that lost its history may count from anywhere
    outbox: Sequence[OutboxMessage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeForgetting:
    """The end of a node's record: NOT_FOUND, STALE when its version is another.

    BAD_STATE when it is not LOST or somebody owns one of its devices. A later registration under
    the name gets a higher epoch and version than any forgotten node had.
    """

    node: NodeId
    expect_version: int
    timers: Sequence[str] = ()
    outbox: Sequence[OutboxMessage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """One stored message as the relay reads it. ``cursor`` orders entries."""

    cursor: str
    message_id: str  # "<entity id>:<version>:<n>"
    subject: str
    type: str
    entity: str
    version: int
    time_ms: int
    data: Json
    record: Json  # the entity's record right after the change
    traceparent: str
    history: str = ""  # "<gen>:<number>" of the store that posted it (see ``state/keeper.py``)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of a listing, newest first. ``next_token`` is "" on the last page."""

    jobs: tuple[JobRecord, ...]
    next_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """An API token without its secret. ``secret_sha256`` is hex; times in ms, 0 = never.

    ``used_ms`` is known of those that ``tokens`` returns.
    """

    id: str
    secret_sha256: str
    role: str  # viewer | submitter | admin
    project: str  # "*" for all
    name: str
    created_ms: int
    expires_ms: int
    used_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Finished attempts that have in common what predictions err by, oldest first.

    ``revision`` grows with every run that is noted, over all groups.
    """

    name: str
    revision: int
    runs: tuple[Json, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """What readiness and back-pressure look at."""

    reachable: bool
    detail: str
    outbox_lag: int
    memory_used_ratio: float  # of maxmemory; 0 when unlimited
    safe_mode: str = ""  # why nothing changes at present (see ``state/keeper.py``)


class StateStore(SecretStore, Protocol):
    """The store. Raises ``Unavailable`` when it cannot be reached, is full, or timed out.

    After ``Unavailable`` the outcome of a change is unknown: call again with the same operation id.
    """

    async def submit(self, op: str, submission: Submission) -> Result:
        """Accept a job: idempotency, quota, record, spec, indexes, outbox; all or nothing."""
        ...

    async def apply(self, op: str, change: Change) -> Result:
        """Make one transition."""
        ...

    async def register_node(self, op: str, registration: NodeRegistration) -> Result:
        """Register an agent; the result carries the new epoch."""
        ...

    async def forget_node(self, op: str, forgetting: NodeForgetting) -> Result:
        """Remove a lost node with its devices and timers."""
        ...

    async def due(self, limit: int = 64) -> tuple[DueTimer, ...]:
        """Hand out due timers by the store's clock."""
        ...

    async def acquire_lease(
        self, name: str, holder: str, ttl_s: float, *, renew: bool = False
    ) -> bool:
        """Take or renew a lease; True while ``holder`` has it.

        With ``renew`` a lease that has ended is not taken again: whoever held it would not notice
        that somebody else did meanwhile.
        """
        ...

    async def release_lease(self, name: str, holder: str) -> None:
        """Give the lease up if ``holder`` has it."""
        ...

    async def job(self, job: JobId) -> JobRecord | None:
        """Read one record."""
        ...

    async def spec(self, job: JobId) -> Json | None:
        """Read a job's specification."""
        ...

    async def plans(self, job: JobId) -> PlanSet | None:
        """Read the plans that MARP stored for a job."""
        ...

    async def pending(self, job: JobId) -> Json | None:
        """Read why a job waits: {"reason", "message", "nearest", "position"}."""
        ...

    async def timeline(self, job: JobId) -> tuple[Json, ...]:
        """Read a job's transitions, oldest first.

        Keys: time_ms, version, state, reason, message, attempt.
        """
        ...

    async def list_jobs(
        self,
        *,
        project: ProjectName | None,
        states: frozenset[JobState],
        page_size: int,
        page_token: str,
        labels: Mapping[str, str],
    ) -> JobPage:
        """List jobs newest first; ``BadRequest`` for a token that this store did not make."""
        ...

    async def jobs_in(self, states: frozenset[JobState]) -> tuple[JobRecord, ...]:
        """Read all jobs in non-terminal states, by arrival. Terminal states are refused."""
        ...

    async def node(self, node: NodeId) -> NodeRecord | None:
        """Read one node."""
        ...

    async def cluster(self) -> ClusterSnapshot:
        """Read all nodes and device owners at one moment."""
        ...

    async def append_series(self, job: JobId, points: Sequence[Json], keep: int = 2000) -> None:
        """Append training metrics; the oldest beyond ``keep`` are dropped."""
        ...

    async def series(self, job: JobId) -> tuple[Json, ...]:
        """Read the kept training metrics, oldest first."""
        ...

    async def note_run(
        self, group: str, run: str, outcome: Json, *, keep: int, groups: int
    ) -> bool:
        """Remember how an attempt went; True when ``run`` (its id) is new to ``group``.

        A group keeps its ``keep`` newest runs, and the ``groups`` newest groups stay.
        """
        ...

    async def run_groups(self, after: int) -> tuple[RunGroup, ...]:
        """Read the groups that changed after a revision, in the order of their last change."""
        ...

    async def read_outbox(self, after: str, limit: int) -> tuple[OutboxEntry, ...]:
        """Read entries after a cursor ("" = the stored cursor), in order."""
        ...

    async def wait_outbox(self, after: str, timeout_s: float) -> bool:
        """Return True soon after an entry beyond a cursor exists, False after ``timeout_s``.

        ``after`` as in ``read_outbox``. True may also be a false alarm: read to know.
        """
        ...

    async def advance_outbox(self, cursor: str) -> None:
        """Remember that everything up to ``cursor`` is published; old entries are trimmed."""
        ...

    async def put_token(self, token: TokenRecord, told: Announcement | None = None) -> None:
        """Store a token, replacing one with the same id.

        A decision that is announced is refused in SAFE MODE (``SafeMode``); another one is not.
        """
        ...

    async def delete_token(self, token_id: str, told: Announcement | None = None) -> bool:
        """Remove a token; False when there is none."""
        ...

    async def token(self, token_id: str) -> TokenRecord | None:
        """Read a token."""
        ...

    async def tokens(self) -> tuple[TokenRecord, ...]:
        """Read all tokens, by age, with when they were last used."""
        ...

    async def use_token(self, token_id: str, at_ms: int) -> None:
        """Note that a token was used."""
        ...

    async def put_project(self, project: Project, told: Announcement | None = None) -> None:
        """Store what is decided for a project; its limit of unfinished jobs holds from now on."""
        ...

    async def projects(self) -> tuple[Project, ...]:
        """Read the projects that were ever stored, by name."""
        ...

    async def put_usage(self, usage: Json) -> None:
        """Store what projects have had of the cluster, for the fair share."""
        ...

    async def usage(self) -> Json | None:
        """Read what ``put_usage`` stored; None when nothing was."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return jobs per state, for metrics."""
        ...

    async def health(self) -> StoreHealth:
        """Tell whether the store can take work; never raises ``Unavailable``."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
