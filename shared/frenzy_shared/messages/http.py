"""Bodies of the HTTP API, shared by the gateway and the SDK. Times are RFC 3339, UTC."""

from datetime import datetime
from typing import Any, Final

from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import PlanSet, ResourcePlan
from frenzy_shared.messages.answers import Basis, Eta, QueueEntry, WouldStart
from frenzy_shared.messages.base import Wire


class DeviceAddress(Wire):
    """A device that a job holds; its index in the list is the rank."""

    node: str
    device: str


class RankView(Wire):
    """How one rank ended. ``exit_code`` None: unknown."""

    rank: int
    exit_code: int | None = None
    reason: str
    message: str = ""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    tokens_per_second: float | None = None
    last_step: int | None = None


class PendingView(Wire):
    """Why a job waits: the dominant reason, a sentence with numbers, the near miss."""

    reason: str
    message: str
    nearest: str = ""
    position: int | None = None  # in the queue, from 1


class JobView(Wire):
    """A job as the API shows it. ``plan`` is the one it runs with, or the best one so far."""

    id: str
    project: str
    name: str
    state: JobState
    version: int
    attempt: int
    priority: int
    reason: str = ""
    message: str = ""
    labels: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults
    kind: str | None = None
    devices: tuple[DeviceAddress, ...] = ()
    plan: ResourcePlan | None = None
    pending: PendingView | None = None
    ranks: tuple[RankView, ...] = ()
    retries: int = 0
    preemptions: int = 0
    last_step: int | None = None
    last_loss: float | None = None
    checkpoint_step: int | None = None
    depends_on: tuple[str, ...] = ()  # jobs that must succeed before it starts
    after: tuple[str, ...] = ()  # jobs that must be over before it starts
    held_by: str = ""  # who keeps it from starting
    submitted_by: str = ""
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class JobList(Wire):
    """A page of jobs, newest first. ``next_page_token`` is "" on the last page.

    ``safe_mode``: why nothing starts or changes at present; "" when it may.
    """

    jobs: tuple[JobView, ...]
    next_page_token: str = ""
    safe_mode: str = ""


class ArrayView(Wire):
    """An array's jobs, by index. ``created``: at least one of them was not there before.

    The answer to a cancel lists the jobs that were not over.
    """

    id: str
    jobs: tuple[str, ...]
    created: bool


class TimelineEntry(Wire):
    """One transition of a job."""

    time: datetime
    version: int
    state: JobState
    attempt: int = 0
    reason: str = ""
    message: str = ""


class Timeline(Wire):
    """A job's transitions, oldest first."""

    entries: tuple[TimelineEntry, ...]


class DeviceView(Wire):
    """A device of a node. ``owner``: "", a job id, or "!quarantine:<why>"."""

    id: str
    kind: str
    memory_bytes: int
    compute_capability: str = ""
    emulated: bool = False
    problem: str = ""
    owner: str = ""
    attempt: int | None = None


class NodeView(Wire):
    """A node and its devices."""

    id: str
    state: str
    epoch: int
    address: str
    reason: str = ""
    drain: str = ""  # why it must get no new work, "" when it may
    labels: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults
    updated_at: datetime
    devices: tuple[DeviceView, ...]


class NodeList(Wire):
    """All nodes, by name. ``safe_mode`` as in ``JobList``."""

    nodes: tuple[NodeView, ...]
    safe_mode: str = ""


class DrainRequest(Wire):
    """Ask that a node gets no new work. Its jobs finish, or stop ``deadline_s`` from now."""

    reason: str = ""
    deadline_s: float | None = None


class DeadLetterView(Wire):
    """A message that a consumer gave up. ``sequence`` is its number in ``stream``."""

    id: int
    time: datetime
    subject: str
    stream: str
    sequence: int
    consumer: str
    deliveries: int
    reason: str
    size_bytes: int
    excerpt: str


class DeadLetterList(Wire):
    """Dead letters, oldest first. ``next_after`` continues the list; None on the last page."""

    letters: tuple[DeadLetterView, ...]
    next_after: int | None = None


class PlanResult(Wire):
    """Ranked plans for a specification on the present cluster. Nothing was stored."""

    plans: PlanSet


class BlobView(Wire):
    """A stored blob."""

    digest: str
    size_bytes: int


class TokenRequest(Wire):
    """Ask for a new API token. ``expires_in_s`` None: never."""

    name: str
    role: str = "submitter"
    project: str = "default"
    expires_in_s: float | None = None


class TokenView(Wire):
    """A new token; ``token`` is shown this once."""

    id: str
    token: str
    name: str
    role: str
    project: str
    expires_at: datetime | None = None


class TokenInfo(Wire):
    """A token without its secret. ``last_used_at`` is exact to a minute; None: never."""

    id: str
    name: str
    role: str
    project: str
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    expired: bool = False


class TokenList(Wire):
    """Tokens, oldest first."""

    tokens: tuple[TokenInfo, ...]


class ExplainView(Wire):
    """Why a job is where it is. ``source``: "scheduler" (fresh) or "store" (last known)."""

    job: str
    state: JobState
    reason: str = ""
    message: str = ""
    nearest: str = ""
    position: int | None = None  # in the queue, from 1
    source: str
    would_start: tuple[WouldStart, ...] = ()
    eta: Eta | None = None
    basis: Basis | None = None


class QueueView(Wire):
    """The first waiting jobs in the order of ``policy``; ``total`` counts all of them.

    ``basis`` is what the predicted times rest on; ``safe_mode`` as in ``JobList``.
    """

    policy: str
    total: int
    entries: tuple[QueueEntry, ...]
    basis: Basis | None = None
    safe_mode: str = ""


class SeriesView(Wire):
    """A job's kept training metrics, oldest first; each point is a ``v1.TrainingPoint``."""

    points: tuple[dict[str, Any], ...]


SAFE_MODE: Final = "safe mode"  # the check that says whether anything may change


class CheckView(Wire):
    """One thing that readiness looks at."""

    name: str
    ok: bool
    detail: str = ""


class ReadinessView(Wire):
    """``status``: ready, degraded (jobs are accepted, something is down), unavailable, stopping."""

    status: str
    checks: tuple[CheckView, ...] = ()

    @property
    def safe_mode(self) -> str:
        """Return why nothing may change at present; "" when it may."""
        return next((c.detail for c in self.checks if c.name == SAFE_MODE and not c.ok), "")


class VersionView(Wire):
    """What answers."""

    version: str
    api: str = "v1"


class ProblemField(Wire):
    """One wrong field."""

    pointer: str
    detail: str


class Problem(Wire):
    """RFC 9457 problem details, media type application/problem+json."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
    trace_id: str = ""
    errors: tuple[ProblemField, ...] = ()
    suggestions: tuple[str, ...] = ()
    context: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults


class NodeTokenRequest(Wire):
    """A one-time token for a machine that is to become a node. ``node`` empty: any new name."""

    node: str = ""
    expires_in_s: float = 900.0


class NodeTokenView(Wire):
    """The token, which is shown once."""

    token: str
    node: str
    expires_at: datetime


class EnrolRequest(Wire):
    """A machine asks to become node ``node``; ``public_key`` is of its own nkey."""

    token: str
    node: str
    public_key: str


class EnrolView(Wire):
    """What a new node needs: the bus's address, and a token with which it fetches blobs."""

    node: str
    nats_url: str
    token: str
