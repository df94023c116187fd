"""What the API can do, as operations (see ``exchange``): each is written once for both clients."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from frenzy.errors import FrenzyError, TimedOut, Unreachable
from frenzy.exchange import Answer, Call, Operation, Pause, Retry, exchange
from frenzy_shared.domain.job import TERMINAL, JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.estimate import DriftList, DriftView, EstimateView, Overrides
from frenzy_shared.messages.http import (
    ArrayView,
    DeadLetterList,
    DeadLetterView,
    ExplainView,
    JobList,
    JobView,
    NodeList,
    NodeTokenView,
    NodeView,
    PlanResult,
    QueueView,
    ReadinessView,
    SeriesView,
    Timeline,
    TimelineEntry,
    TokenInfo,
    TokenList,
    TokenView,
    VersionView,
)
from frenzy_shared.messages.projects import ProjectList, ProjectSettings, ProjectView
from frenzy_shared.messages.secrets import SecretList, SecretView
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import Reconciliation

W = TypeVar("W", bound=Wire)

_FIRST_POLL_S: Final = 0.2
_LAST_POLL_S: Final = 2.0
_RECONCILE_S: Final = 330.0  # the whole event history is read for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that the server accepted. ``created`` is False when the key had been used before."""

    job: JobView
    created: bool


def upload(retry: Retry, blobs: Mapping[str, Path]) -> Operation[int]:
    """Send the blobs (path by digest) that the server lacks; return how many those were."""
    sent = 0
    for digest, path in blobs.items():
        where = f"/blobs/{digest}"
        known = yield from exchange(Call(method="HEAD", path=where), retry, accept=frozenset({404}))
        if known.status == 404:
            yield from exchange(Call(method="PUT", path=where, file=path), retry)
            sent += 1
    return sent


def submit(
    retry: Retry, spec: JobSpec, *, key: str, project: str, force_queue: bool
) -> Operation[Submitted]:
    """Submit under an idempotency key."""
    call = Call(
        method="POST",
        path="/jobs",
        query=(("project", project), ("force_queue", str(force_queue).lower())),
        headers={"Idempotency-Key": key},
        json=spec.model_dump(mode="json", exclude_none=True),
    )
    answer = yield from exchange(call, retry)
    return Submitted(job=_decode(JobView, answer), created=answer.status == 201)


def submit_array(
    retry: Retry, spec: JobSpec, *, key: str, project: str, force_queue: bool
) -> Operation[ArrayView]:
    """Submit all jobs of an array under an idempotency key."""
    call = Call(
        method="POST",
        path="/arrays",
        query=(("project", project), ("force_queue", str(force_queue).lower())),
        headers={"Idempotency-Key": key},
        json=spec.model_dump(mode="json", exclude_none=True),
    )
    answer = yield from exchange(call, retry)
    return _decode(ArrayView, answer)


def cancel_array(retry: Retry, array: str) -> Operation[ArrayView]:
    """Cancel the jobs of an array that are not over."""
    path = f"/arrays/{quote(array, safe='')}:cancel"
    answer = yield from exchange(Call(method="POST", path=path), retry)
    return _decode(ArrayView, answer)


def plan(retry: Retry, spec: JobSpec, *, project: str) -> Operation[PlanSet]:
    """Ask for ranked plans; nothing is stored."""
    body = spec.model_dump(mode="json", exclude_none=True)
    query = (("project", project),)
    answer = yield from exchange(Call(method="POST", path="/plans", query=query, json=body), retry)
    return _decode(PlanResult, answer).plans


def estimate(
    retry: Retry, spec: JobSpec, *, gpu: str | None, overrides: Overrides
) -> Operation[EstimateView]:
    """Ask what one exact configuration takes; nothing is stored."""
    body = {
        "spec": spec.model_dump(mode="json", exclude_none=True),
        "gpu": gpu,
        "overrides": overrides.model_dump(mode="json", exclude_none=True),
    }
    answer = yield from exchange(Call(method="POST", path="/estimates", json=body), retry)
    return _decode(EstimateView, answer)


def drifts(retry: Retry) -> Operation[tuple[DriftView, ...]]:
    """Ask which predictions have lately left their bands."""
    return _decode(DriftList, (yield from _get(retry, "/drifts"))).drifts


def page(
    retry: Retry,
    *,
    project: str | None,
    states: Iterable[JobState | str],
    labels: Mapping[str, str],
    page_size: int,
    page_token: str,
) -> Operation[JobList]:
    """Read one page of the list of jobs."""
    query = [("page_size", str(page_size))]
    query += [("project", project)] if project is not None else []
    query += [("state", str(state)) for state in states]
    query += [(f"label.{key}", value) for key, value in labels.items()]
    query += [("page_token", page_token)] if page_token else []
    answer = yield from _get(retry, "/jobs", tuple(query))
    return _decode(JobList, answer)


def get(retry: Retry, job: str) -> Operation[JobView]:
    """Read one job."""
    answer = yield from _get(retry, job_path(job))
    return _decode(JobView, answer)


def cancel(retry: Retry, job: str) -> Operation[JobView]:
    """Cancel a job; cancelling twice is one cancel."""
    answer = yield from exchange(Call(method="POST", path=f"{job_path(job)}:cancel"), retry)
    return _decode(JobView, answer)


def hold(retry: Retry, job: str) -> Operation[JobView]:
    """Keep a waiting job from starting; holding twice is one hold."""
    answer = yield from exchange(Call(method="POST", path=f"{job_path(job)}:hold"), retry)
    return _decode(JobView, answer)


def release(retry: Retry, job: str) -> Operation[JobView]:
    """Let a job that was held back start again."""
    answer = yield from exchange(Call(method="POST", path=f"{job_path(job)}:release"), retry)
    return _decode(JobView, answer)


def wait(
    retry: Retry,
    job: str,
    *,
    timeout_s: float | None,
    patience_s: float = 120.0,
    clock: Callable[[], float] = time.monotonic,
) -> Operation[JobView]:
    """Poll until the job is over. A server that is away for up to ``patience_s`` is waited for.

    Raises:
        TimedOut: ``timeout_s`` passed first.
    """
    start = last_answer = clock()
    pause = _FIRST_POLL_S
    while True:
        try:
            view = yield from get(retry, job)
        except Unreachable:
            if clock() - last_answer > patience_s:
                raise
        else:
            last_answer = clock()
            if view.state in TERMINAL:
                return view
        left = None if timeout_s is None else timeout_s - (clock() - start)
        if left is not None and left <= 0:
            raise TimedOut(f"job {job} is not over after {timeout_s:g} s")
        yield Pause(seconds=pause if left is None else min(pause, left))
        pause = min(_LAST_POLL_S, pause * 1.3)


def explain(retry: Retry, job: str) -> Operation[ExplainView]:
    """Ask the scheduler why a job is where it is."""
    answer = yield from _get(retry, f"{job_path(job)}/explain")
    return _decode(ExplainView, answer)


def queue(retry: Retry, *, project: str | None, limit: int) -> Operation[QueueView]:
    """Read the first waiting jobs."""
    query = [("limit", str(limit))] + ([("project", project)] if project is not None else [])
    answer = yield from _get(retry, "/queue", tuple(query))
    return _decode(QueueView, answer)


def policy() -> Operation[str]:
    """Ask for the scheduler's policy: the queue names it. Once: nobody waits for this alone."""
    return (yield from queue(Retry(attempts=1), project=None, limit=1)).policy


def record(retry: Retry, *, cycles: int) -> Operation[bytes]:
    """Read the scheduler's last cycles as a recording."""
    query = (("cycles", str(cycles)),)
    answer = yield from exchange(Call(method="POST", path="/admin/record", query=query), retry)
    return answer.body


def timeline(retry: Retry, job: str) -> Operation[tuple[TimelineEntry, ...]]:
    """Read a job's transitions, oldest first."""
    answer = yield from _get(retry, f"{job_path(job)}/timeline")
    return _decode(Timeline, answer).entries


def job_plans(retry: Retry, job: str) -> Operation[PlanSet]:
    """Read the plans that were stored for a job; empty, with a message, before it was planned."""
    answer = yield from _get(retry, f"{job_path(job)}/plans")
    return _decode(PlanResult, answer).plans


def metrics(retry: Retry, job: str) -> Operation[tuple[dict[str, Any], ...]]:
    """Read the kept training metrics, oldest first."""
    answer = yield from _get(retry, f"{job_path(job)}/metrics")
    return _decode(SeriesView, answer).points


def job_json(retry: Retry, job: str, part: str) -> Operation[Any]:
    """Read a part of a job that is plain JSON: ``spec`` or ``events``."""
    answer = yield from _get(retry, f"{job_path(job)}/{part}")
    try:
        return json.loads(answer.body)
    except ValueError:
        raise _strange(answer) from None


def log_text(retry: Retry, job: str, query: tuple[tuple[str, str], ...]) -> Operation[str]:
    """Read the log so far as text."""
    call = Call(
        method="GET", path=f"{job_path(job)}/logs", query=query, headers={"Accept": "text/plain"}
    )
    answer = yield from exchange(call, retry)
    return answer.body.decode("utf-8", "replace")


def nodes(retry: Retry) -> Operation[tuple[NodeView, ...]]:
    """Read all nodes."""
    answer = yield from _get(retry, "/nodes")
    return _decode(NodeList, answer).nodes


def drain(retry: Retry, node: str, *, reason: str, deadline_s: float | None) -> Operation[NodeView]:
    """Give a node no new work."""
    body = {"reason": reason, "deadline_s": deadline_s}
    call = Call(method="POST", path=f"{_node_path(node)}:drain", json=body)
    return _decode(NodeView, (yield from exchange(call, retry)))


def undrain(retry: Retry, node: str) -> Operation[NodeView]:
    """Let a node have work again."""
    call = Call(method="POST", path=f"{_node_path(node)}:undrain")
    return _decode(NodeView, (yield from exchange(call, retry)))


def confirm_dead(retry: Retry, node: str) -> Operation[NodeView]:
    """Say that nothing runs on a silent node."""
    call = Call(method="POST", path=f"{_node_path(node)}:confirm-dead")
    return _decode(NodeView, (yield from exchange(call, retry)))


def forget_node(retry: Retry, node: str) -> Operation[None]:
    """Remove the record of a lost node."""
    yield from exchange(Call(method="DELETE", path=_node_path(node)), retry)


def node_token(retry: Retry, *, node: str, expires_in_s: float) -> Operation[NodeTokenView]:
    """Make a one-time token with which a machine becomes a node."""
    body = {"node": node, "expires_in_s": expires_in_s}
    answer = yield from exchange(Call(method="POST", path="/nodes:token", json=body), retry)
    return _decode(NodeTokenView, answer)


def create_token(
    retry: Retry, *, role: str, project: str, name: str, expires_in_s: float | None
) -> Operation[TokenView]:
    """Make an API token."""
    body = {"role": role, "project": project, "name": name, "expires_in_s": expires_in_s}
    answer = yield from exchange(Call(method="POST", path="/tokens", json=body), retry)
    return _decode(TokenView, answer)


def tokens(retry: Retry) -> Operation[tuple[TokenInfo, ...]]:
    """Read the tokens that the caller administers."""
    answer = yield from _get(retry, "/tokens")
    return _decode(TokenList, answer).tokens


def revoke_token(retry: Retry, token: str) -> Operation[None]:
    """Make a token void."""
    path = f"/tokens/{quote(token, safe='')}:revoke"
    yield from exchange(Call(method="POST", path=path), retry)


def revoke_node(retry: Retry, node: str) -> Operation[None]:
    """Shut a node out."""
    yield from exchange(Call(method="POST", path=f"{_node_path(node)}:revoke"), retry)


def reconcile(retry: Retry, *, apply: bool, dead: Sequence[str]) -> Operation[Reconciliation]:
    """Ask what a store in SAFE MODE says wrongly, or put it right."""
    query = (("apply", str(apply).lower()), *(("dead", node) for node in dead))
    call = Call(method="POST", path="/admin/reconcile", query=query, patience_s=_RECONCILE_S)
    return _decode(Reconciliation, (yield from exchange(call, retry)))


def projects(retry: Retry) -> Operation[tuple[ProjectView, ...]]:
    """Read the projects that the caller may see."""
    answer = yield from _get(retry, "/projects")
    return _decode(ProjectList, answer).projects


def project(retry: Retry, name: str) -> Operation[ProjectView]:
    """Read one project."""
    answer = yield from _get(retry, f"/projects/{quote(name, safe='')}")
    return _decode(ProjectView, answer)


def set_project(retry: Retry, name: str, settings: ProjectSettings) -> Operation[ProjectView]:
    """Replace everything that is decided for a project."""
    body = settings.model_dump(mode="json", exclude_none=True)
    path = f"/projects/{quote(name, safe='')}"
    answer = yield from exchange(Call(method="PUT", path=path, json=body), retry)
    return _decode(ProjectView, answer)


def set_secret(retry: Retry, project: str, name: str, value: str) -> Operation[SecretView]:
    """Keep a value of a project; it cannot be read back."""
    call = Call(method="PUT", path=_secret_path(project, name), text=value)
    return _decode(SecretView, (yield from exchange(call, retry)))


def secrets(retry: Retry, project: str) -> Operation[tuple[SecretView, ...]]:
    """Read a project's secrets without their values."""
    answer = yield from _get(retry, f"/projects/{quote(project, safe='')}/secrets")
    return _decode(SecretList, answer).secrets


def delete_secret(retry: Retry, project: str, name: str) -> Operation[None]:
    """Remove a secret."""
    yield from exchange(Call(method="DELETE", path=_secret_path(project, name)), retry)


def dead_letters(retry: Retry, *, after: int) -> Operation[DeadLetterList]:
    """Read one page of what services gave up."""
    answer = yield from _get(retry, "/admin/dlq", (("after", str(after)),))
    return _decode(DeadLetterList, answer)


def settle_dead_letter(retry: Retry, letter: int, *, how: str) -> Operation[DeadLetterView]:
    """Send a dead letter's message again (``replay``), or throw it away (``drop``)."""
    call = Call(method="POST", path=f"/admin/dlq/{letter}:{how}")
    return _decode(DeadLetterView, (yield from exchange(call, retry)))


def readiness(retry: Retry) -> Operation[ReadinessView]:
    """Ask what works; a server that accepts nothing says so too."""
    call = Call(method="GET", path="/readyz", root="")
    answer = yield from exchange(call, retry, accept=frozenset({503}))
    return _decode(ReadinessView, answer)


def version(retry: Retry) -> Operation[VersionView]:
    """Ask who answers."""
    answer = yield from _get(retry, "/version")
    return _decode(VersionView, answer)


def _secret_path(project: str, name: str) -> str:
    return f"/projects/{quote(project, safe='')}/secrets/{quote(name, safe='')}"


def _node_path(node: str) -> str:
    return f"/nodes/{quote(node, safe='')}"


def job_path(job: str) -> str:
    """Return a job's path; whatever ``job`` holds stays one segment."""
    return f"/jobs/{quote(job, safe='')}"


def log_query(
    rank: int | None, attempt: int | None, tail: int | None
) -> tuple[tuple[str, str], ...]:
    """Build the query that selects log lines."""
    chosen = {"rank": rank, "attempt": attempt, "tail": tail}
    return tuple((key, str(value)) for key, value in chosen.items() if value is not None)


def _get(retry: Retry, path: str, query: tuple[tuple[str, str], ...] = ()) -> Operation[Answer]:
    return exchange(Call(method="GET", path=path, query=query), retry)


def _decode(kind: type[W], answer: Answer) -> W:
    try:
        return kind.decode(answer.body)
    except ValidationError:
        raise _strange(answer) from None


def _strange(answer: Answer) -> FrenzyError:
    shown = answer.body[:80].decode("utf-8", "replace")
    return FrenzyError(
        f"the answer is not what this version of Frenzy expects: {shown!r}",
        suggestions=("compare versions: frenzy version", "check that the URL is Frenzy's"),
    )
