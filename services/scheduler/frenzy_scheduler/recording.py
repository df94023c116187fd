"""Cycles as data: what was asked and what was decided, to be run again elsewhere.

A recording is JSON: ``{"recording": 1, "plans": {...}, "cycles": [...]}``. Plans are written once,
by a digest, and without what only ranks need (the DeepSpeed configuration, the environment): no
policy reads it. Readers ignore what they do not know; a change of meaning raises the number.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from frenzy_scheduler.core.admission import Holding
from frenzy_scheduler.core.decisions import Decision, Hold, QueuedJob, RunningJob, Strategy
from frenzy_scheduler.core.pending import explain
from frenzy_scheduler.core.policies import policy_named
from frenzy_scheduler.core.question import Question
from frenzy_shared.domain.cluster import ClusterSnapshot
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.domain.project import Project
from frenzy_shared.errors import BadRequest
from frenzy_shared.messages.codec import from_json, to_json

VERSION: Final = 1

Json = Mapping[str, Any]
J = TypeVar("J", QueuedJob, RunningJob)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One cycle: the question, and the decisions as ``told`` writes them."""

    question: Question
    decisions: tuple[Json, ...]

    @classmethod
    def of(cls, question: Question, decisions: Sequence[Decision]) -> "Cycle":
        """Return a cycle as it was lived."""
        return cls(question=question, decisions=tuple(told(decisions, question.now_ms)))


def told(decisions: Sequence[Decision], now_ms: int) -> list[Json]:
    """Write decisions as JSON, a hold with the reason that people are given."""
    return [_told(decision, now_ms) for decision in decisions]


def write(cycles: Sequence[Cycle]) -> dict[str, Any]:
    """Return a recording."""
    plans: dict[str, Any] = {}
    written = [_written(cycle, plans) for cycle in cycles]
    return {"recording": VERSION, "plans": plans, "cycles": written}


def read(text: str | bytes) -> list[Cycle]:
    """Read a recording.

    Raises:
        BadRequest: it is none, one of another version, or broken; the message says where.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise _bad(f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or "recording" not in data:
        raise _bad("it has no key 'recording'")
    if data["recording"] != VERSION:
        raise _bad(f"it has version {data['recording']!r}; this Frenzy reads version {VERSION}")
    try:
        plans = {key: from_json(ResourcePlan, plan) for key, plan in data["plans"].items()}
        cycles = list(data["cycles"])
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise _bad(f"plans or cycles are broken: {_short(error)}") from None
    return [_read(cycle, plans, number) for number, cycle in enumerate(cycles, 1)]


def _written(cycle: Cycle, plans: dict[str, Any]) -> dict[str, Any]:
    question = cycle.question
    return {
        "now_ms": question.now_ms,
        "policy": {"name": question.policy.name, "constants": asdict(question.policy)},  # type: ignore[call-overload]
        "queue": [_job(job, plans) for job in question.queue],
        "running": [_job(job, plans) for job in question.running],
        "cluster": to_json(question.cluster),
        "projects": [to_json(project) for project in question.projects],
        "holdings": [to_json(holding) for holding in question.holdings],
        "decisions": list(cycle.decisions),
    }


def _job(job: QueuedJob | RunningJob, plans: dict[str, Any]) -> dict[str, Any]:
    keys = []
    for plan in job.plans:
        written = to_json(replace(plan, deepspeed_config={}, environment={}))
        text = json.dumps(written, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        plans[key] = written
        keys.append(key)
    return {**to_json(replace(job, plans=())), "plans": keys}


def _told(decision: Decision, now_ms: int) -> Json:
    if isinstance(decision, Hold):
        why = explain(decision, now_ms)
        return {
            "decision": "hold",
            "job": decision.job.id,
            "position": decision.position,
            "reason": why.reason,
            "message": why.message,
        }
    kind = type(decision).__name__.lower()
    return {"decision": kind, **to_json(decision)}


def _read(data: Any, plans: Mapping[str, ResourcePlan], number: int) -> Cycle:  # noqa: ANN401
    try:
        question = Question(
            queue=[_read_job(QueuedJob, job, plans) for job in data["queue"]],
            running=[_read_job(RunningJob, job, plans) for job in data["running"]],
            cluster=from_json(ClusterSnapshot, data["cluster"]),
            now_ms=int(data["now_ms"]),
            policy=_policy(data["policy"]),
            projects=tuple(from_json(Project, one) for one in data["projects"]),
            holdings=tuple(from_json(Holding, one) for one in data["holdings"]),
        )
        return Cycle(question=question, decisions=tuple(map(dict, data["decisions"])))
    except (KeyError, TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        raise _bad(f"cycle {number} is broken: {_short(error)}") from None


def _read_job(kind: type[J], data: Json, plans: Mapping[str, ResourcePlan]) -> J:
    rest = {key: value for key, value in data.items() if key not in ("plans", "turn_ms")}
    job = from_json(kind, {**rest, "plans": ()})
    return replace(job, plans=tuple(plans[key] for key in data["plans"]))


def _policy(data: Json) -> Strategy:
    found = policy_named(data["name"])
    if found is None:
        raise ValueError(f"there is no policy {data['name']!r}")
    known = {item.name for item in fields(found)}  # type: ignore[arg-type]
    constants = {key: value for key, value in data["constants"].items() if key in known}
    return replace(found, **constants)  # type: ignore[type-var]


def _bad(why: str) -> BadRequest:
    return BadRequest(
        f"not a recording that can be replayed: {why}",
        suggestions=("make one: frenzy admin record -o cycles.json",),
    )


def _short(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
