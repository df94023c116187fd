"""What accepting a job means, apart from talking to servers. Pure."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from frenzy_shared.domain.cluster import kinds_digest
from frenzy_shared.domain.ids import RESERVED_PROJECTS, JobId, ProjectName, is_name
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.plan import PlanSet, RefusedPlan
from frenzy_shared.errors import (
    BadRequest,
    FieldProblem,
    FrenzyError,
    IdempotencyConflict,
    InvalidModelConfig,
    InvalidSpec,
    NoFeasiblePlan,
    PayloadTooLarge,
    Unavailable,
)
from frenzy_shared.messages import subjects
from frenzy_shared.messages.estimate import EstimateReply
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import PlanReply
from frenzy_shared.state.port import OutboxMessage, Submission
from frenzy_shared.units import KIB

MAX_KEY_LENGTH: Final = 255
MAX_SPEC_BYTES: Final = 64 * KIB
_NEAR_MISSES: Final = 3
_REFERENCES: Final = ("data", "tokenizer", "workdir")
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def check_project(project: str) -> ProjectName:
    """Return ``project`` as a name that jobs may use.

    Raises:
        InvalidSpec: not a name, or reserved for events of the cluster.
    """
    if is_name(project) and project not in RESERVED_PROJECTS:
        return ProjectName(project)
    detail = (
        f"{project!r} is reserved for the cluster's own events"
        if project in RESERVED_PROJECTS
        else "use 1-63 characters of a-z, 0-9 and '-', no '-' at either end"
    )
    raise InvalidSpec(
        f"project: {detail}",
        problems=(FieldProblem(pointer="/project", detail=detail),),
        suggestions=("choose another project name",),
    )


def check_key(key: str) -> str:
    """Return a client's Idempotency-Key.

    Raises:
        BadRequest: it is empty, too long, or holds other than visible ASCII characters.
    """
    if 1 <= len(key) <= MAX_KEY_LENGTH and all("!" <= character <= "~" for character in key):
        return key
    raise BadRequest(
        f"Idempotency-Key must be 1 to {MAX_KEY_LENGTH} visible ASCII characters without spaces",
        suggestions=("use a random UUID, the same for each retry of one request",),
    )


def job_id_of(project: ProjectName, key: str) -> JobId:
    """Return the id of the job that ``key`` makes: the same for every retry, on every replica.

    So a retry finds its job before anything else is asked, and is never refused for a cluster
    that changed meanwhile.
    """
    value = int.from_bytes(hashlib.sha256(f"{project}\n{key}".encode()).digest()[:17])
    return JobId("".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)))


def spec_digest(spec: JobSpec) -> str:
    """Return the hash that tells a retry from a key used for something else."""
    return hashlib.sha256(_canonical(spec).encode()).hexdigest()


def require_same(record: JobRecord, digest: str) -> None:
    """Raise ``IdempotencyConflict`` if a job was made by a request with another body."""
    if record.spec_sha256 != digest:
        raise conflict(record.id)


def conflict(job: str) -> IdempotencyConflict:
    """Return the error of a key that made ``job`` for another request."""
    return IdempotencyConflict(
        f"this Idempotency-Key was used for job {job} with a different body",
        suggestions=("use a new key for a new job",),
    )


def blob_references(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield (pointer, digest) of every blob that the specification names."""
    for name in _REFERENCES:
        reference: str | None = getattr(spec, name)
        if reference is not None and reference.startswith("blob:"):
            yield f"/{name}", reference.removeprefix("blob:")


def name_of(spec: JobSpec) -> str:
    """Return what a job is called: its own name, or its model's."""
    if spec.name is not None:
        return spec.name
    return spec.model if isinstance(spec.model, str) and is_name(spec.model) else "job"


def refuse_array(spec: JobSpec) -> None:
    """Raise ``InvalidSpec`` for the specification of many jobs where one is asked for."""
    if spec.array is not None:
        detail = "makes many jobs: send it to POST /api/v1/arrays (frenzy submit does)"
        problem = FieldProblem(pointer="/array", detail=detail)
        raise InvalidSpec(f"array: {detail}", problems=(problem,))


def new_submission(
    spec: JobSpec,
    *,
    job: JobId,
    project: ProjectName,
    key: str,
    submitted_by: str,
    force_queue: bool,
    traceparent: str,
    waits_for: tuple[JobId, ...] = (),
    after: tuple[JobId, ...] = (),
    digest: str | None = None,
) -> Submission:
    """Return the job to store, with the event that announces it.

    ``digest`` is of the specification that was sent, where that is another one: an array's.

    Raises:
        PayloadTooLarge: the specification is larger than what is kept.
    """
    document = _kept(spec)  # in the event too: a lost store is rebuilt from events
    digest, strict = digest or spec_digest(spec), spec.depends_on_end == "success"
    record = JobRecord(
        id=job,
        project=project,
        name=name_of(spec),
        state=JobState.SUBMITTED,
        version=1,
        priority=spec.priority,
        submitted_by=submitted_by,
        spec_sha256=digest,
        labels=tuple(sorted(spec.labels.items())),
        depends_on=waits_for if strict else (),
        after=after if strict else (*waits_for, *after),
        force_queue=force_queue,
        traceparent=traceparent,
    )
    announcement = OutboxMessage(
        subject=subjects.job_event(project, "submitted", job),
        type="submitted",
        data={"submitted_by": submitted_by, "spec": document},
    )
    return Submission(
        job=record, spec=document, idempotency_key=key, body_sha256=digest, outbox=(announcement,)
    )


def refusal(plans: PlanSet) -> NoFeasiblePlan:
    """Say why a job can never run here: the pins that are to blame, and the nearest misses."""
    pinned = [refused for refused in plans.refused if refused.pin]
    problems = tuple(
        dict.fromkeys(
            FieldProblem(
                pointer="/" + refused.pin.replace(".", "/"),
                detail=f"{refused.option}: {refused.reason}",
            )
            for refused in pinned
        )
    )
    pins = tuple(dict.fromkeys(refused.pin for refused in pinned))
    message = plans.message or _summary(plans)
    misses = [miss for miss in _near_misses(plans) if miss.reason not in message]
    return NoFeasiblePlan(
        message,
        problems=problems,
        suggestions=(
            *(f"remove or relax the pin {pin}" for pin in pins),
            *(f"nearest miss: {miss.option}: {miss.reason}" for miss in misses),
            "submit with force_queue=true (--force-queue) to wait for nodes that fit",
        ),
    )


def planning_error(reply: PlanReply | EstimateReply) -> FrenzyError:
    """Return the error that a reply without an answer tells of."""
    kind = _definite(reply)
    if kind is None:
        return Unavailable(f"MARP could not plan: {reply.error}", suggestions=reply.suggestions)
    return kind(reply.error, suggestions=reply.suggestions)


def objection(reply: PlanReply, *, force_queue: bool) -> FrenzyError | None:
    """Return why a job must not be accepted; None when MARP has no definite objection.

    That nothing fits a cluster without devices says nothing about the job: it waits for nodes.
    """
    if reply.plans is not None:
        no_devices = reply.plans.kinds_digest == kinds_digest(())
        accepted = reply.plans.feasible or force_queue or no_devices
        return None if accepted else refusal(reply.plans)
    kind = _definite(reply)
    waits = kind is NoFeasiblePlan and force_queue
    return None if kind is None or waits else planning_error(reply)


def _canonical(spec: JobSpec) -> str:
    return json.dumps(json.loads(spec.encode()), sort_keys=True, separators=(",", ":"))


def _kept(spec: JobSpec) -> dict[str, Any]:
    size = len(_canonical(spec))
    if size > MAX_SPEC_BYTES:
        raise PayloadTooLarge(
            f"the specification takes {size} bytes; at most {MAX_SPEC_BYTES} are kept",
            suggestions=("name a model preset, or leave unused keys out of the model's config",),
        )
    document: dict[str, Any] = json.loads(spec.encode())
    return document


def _definite(reply: PlanReply | EstimateReply) -> type[FrenzyError] | None:
    """Return what the specification's own error is; None when MARP itself is in trouble."""
    for kind in (InvalidModelConfig, NoFeasiblePlan):
        if reply.error_code == kind.code:
            return kind
    return InvalidSpec if reply.error_code.startswith("invalid") else None


def _summary(plans: PlanSet) -> str:
    looked_at = len(plans.refused)
    return f"no plan fits this cluster ({looked_at} options were looked at)"


def _near_misses(plans: PlanSet) -> list[RefusedPlan]:
    short = [refused for refused in plans.refused if refused.shortfall_bytes > 0]
    return sorted(short, key=lambda refused: refused.shortfall_bytes)[:_NEAR_MISSES]
