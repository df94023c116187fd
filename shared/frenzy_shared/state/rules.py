"""What every store checks of a call before it looks at its data, and the bounds it keeps.

A broken rule is a mistake in the caller's code, so it raises ``ValueError``; what depends on the
stored data is answered with a ``Status`` instead.
"""

import math
from dataclasses import fields
from typing import Final

from frenzy_shared.domain.cluster import NodeRecord, NodeState
from frenzy_shared.domain.job import TERMINAL, JobRecord, JobState
from frenzy_shared.state.port import Change, Release, Submission

OP_MEMO_S: Final = 86_400  # how long a repeated call is recognised
IDEMPOTENCY_S: Final = 30 * 86_400  # how long a client's Idempotency-Key is
TIMER_REPEAT_MS: Final = 30_000
OUTBOX_KEEP_MS: Final = 86_400_000  # published entries older than this are dropped
TIMELINE_KEEP: Final = 1000
FREE: Final = ""
QUARANTINE: Final = "!quarantine:"
LOST: Final = "!quarantine:lost"

_KEPT_BY_STORE: Final = frozenset(
    {"id", "project", "version", "sequence", "owned_devices", "epoch", "created_ms", "updated_ms"}
)
_PATCHABLE: Final = {
    "job": frozenset(field.name for field in fields(JobRecord)) - _KEPT_BY_STORE,
    "node": frozenset(field.name for field in fields(NodeRecord)) - _KEPT_BY_STORE,
}
_STATES: Final = {"job": frozenset(JobState), "node": frozenset(NodeState)}
DOCUMENTS: Final = frozenset({"plans", "pending"})

# A job in one of these owns nothing.
OWNS_NOTHING: Final = TERMINAL | {JobState.SUBMITTED, JobState.QUEUED}


def split_entity(entity: str) -> tuple[str, str]:
    """Split ``job:<id>`` or ``node:<id>`` into kind and id.

    Raises:
        ValueError: it is neither.
    """
    kind, _, name = entity.partition(":")
    if kind not in _PATCHABLE or not name:
        raise ValueError(f"{entity!r} is neither job:<id> nor node:<id>")
    return kind, name


def is_job_token(owner: str) -> bool:
    """Tell whether an owner is a job's attempt, not "" or a quarantine."""
    return owner != FREE and not owner.startswith(QUARANTINE)


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, never less than ``seconds``."""
    return math.ceil(seconds * 1000)


def check_live(states: frozenset[JobState]) -> None:
    """Raise ``ValueError`` for terminal states: finished jobs are listed by pages, never all."""
    if states & TERMINAL:
        raise ValueError(f"not live: {', '.join(sorted(states & TERMINAL))}; use list_jobs")


def check_submission(submission: Submission) -> None:
    """Raise ``ValueError`` unless the job is fresh."""
    job = submission.job
    if job.state is not JobState.SUBMITTED or job.version != 1 or job.owned_devices:
        raise ValueError(f"job {job.id} must be SUBMITTED, version 1, without devices")
    if not submission.idempotency_key:
        raise ValueError("a submission needs an idempotency key")


def check_change(change: Change) -> None:
    """Raise ``ValueError`` when the change cannot mean anything, whatever the store holds."""
    kind, name = split_entity(change.entity)
    _check_patch(kind, change)
    if kind == "job":
        _check_job_change(change)
    else:
        _check_node_change(change)
    for release in change.releases:
        _check_release(kind, name, release)
    if change.outbox and not change.patch:
        raise ValueError("messages need a patch: their ids carry the version that it makes")


def _check_patch(kind: str, change: Change) -> None:
    unknown = set(change.patch) - _PATCHABLE[kind]
    if unknown:
        raise ValueError(f"a {kind} patch cannot set {', '.join(sorted(unknown))}")
    if "state" in change.patch and change.patch["state"] not in _STATES[kind]:
        raise ValueError(f"{change.patch['state']!r} is not a {kind} state")


def _check_job_change(change: Change) -> None:
    if change.expect_epoch is not None:
        raise ValueError("jobs have no epoch to expect")
    opened = change.patch.get("attempt") if change.claim_attempt is None else change.claim_attempt
    if change.claims and not isinstance(opened, int):
        raise ValueError("claims need the attempt that they open, in the patch or beside it")
    unknown = set(change.documents) - DOCUMENTS
    if unknown:
        raise ValueError(f"unknown documents: {', '.join(sorted(unknown))}")


def _check_node_change(change: Change) -> None:
    if change.expect_attempt is not None:
        raise ValueError("nodes have no attempt to expect")
    if change.claims or change.documents:
        raise ValueError("only jobs claim devices and have documents")


def _check_release(kind: str, name: str, release: Release) -> None:
    """Keep ``owned_devices`` true: it is only counted for the job that is being changed."""
    own = kind == "job" and release.token.startswith(f"{name}#")
    if is_job_token(release.token) and not own:
        raise ValueError(f"{kind} {name} cannot release devices of {release.token!r}")
    if release.to != FREE and not release.to.startswith(QUARANTINE):
        raise ValueError(f"a device is released to '' or '{QUARANTINE}<why>', not {release.to!r}")
