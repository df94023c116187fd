"""How a change is handed to ``functions.lua``: one JSON document.

Values that Lua only stores go as JSON texts inside it, so that Lua never parses them. An absent
key stands for None: Lua has no null of its own.
"""

from collections.abc import Sequence
from typing import Any

from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.keeper import Decision, Leave, Restore
from frenzy_shared.state.port import (
    Announcement,
    Change,
    NodeForgetting,
    NodeRegistration,
    OutboxMessage,
    Status,
    Submission,
    Timer,
)
from frenzy_shared.state.records import dumps, texts
from frenzy_shared.state.rules import milliseconds, split_entity
from frenzy_shared.telemetry import traceparent


def submit_request(submission: Submission) -> str:
    """Return the argument of ``submit``."""
    job = submission.job
    return dumps(
        {
            "id": job.id,
            "project": job.project,
            "key": submission.idempotency_key,
            "body_sha256": submission.body_sha256,
            "record": texts(to_json(job)),
            "spec": dumps(submission.spec),
            **_messages(submission.outbox),
        }
    )


def apply_request(change: Change) -> str:
    """Return the argument of ``apply``."""
    kind, name = split_entity(change.entity)
    request: dict[str, Any] = {
        "entity": change.entity,
        "kind": kind,
        "id": name,
        "expect": _expectations(change),
        "allowed_from": sorted(change.allowed_from),
        "patch": texts(change.patch),
        "documents": [
            {"name": document} if content is None else {"name": document, "text": dumps(content)}
            for document, content in change.documents.items()
        ],
        "claims": [to_json(claim) for claim in change.claims],
        "releases": [to_json(release) for release in change.releases],
        "set_timers": _timers(change.set_timers),
        "clear_timers": list(change.clear_timers),
        **_messages(change.outbox),
    }
    if change.lease is not None:
        request["lease"] = _lease(change.lease)
    if change.claim_attempt is not None:
        request["claim_attempt"] = str(change.claim_attempt)
    return dumps(request)


def register_request(registration: NodeRegistration) -> str:
    """Return the argument of ``register_node``; the store adds epoch, version and time."""
    record = {
        "id": registration.node,
        "state": NodeState.JOINING,
        "boot_id": registration.boot_id,
        "address": registration.address,
        "devices": [to_json(device) for device in registration.devices],
        "labels": registration.labels,
        "host_memory_bytes": registration.host_memory_bytes,
        "reason": "",
    }
    return dumps(
        {
            "id": registration.node,
            "record": texts(record),
            "devices": [device.id for device in registration.devices],
            "least_epoch": registration.least_epoch,
            **_messages(registration.outbox),
        }
    )


def forget_request(forgetting: NodeForgetting) -> str:
    """Return the argument of ``forget_node``."""
    return dumps(
        {
            "id": forgetting.node,
            "expect_version": forgetting.expect_version,
            "timers": list(forgetting.timers),
            **_messages(forgetting.outbox),
        }
    )


def restore_request(restore: Restore) -> str:
    """Return the argument of ``restore``."""
    return dumps(
        {
            "lease": _lease(restore.lease),
            "gen": restore.gen,
            "posted": restore.posted,
            "jobs": [
                {
                    "id": job.record["id"],
                    "record": texts(job.record),
                    "timeline": [dumps(entry) for entry in job.timeline],
                    **({} if job.spec is None else {"spec": dumps(job.spec)}),
                    **({} if job.plans is None else {"plans": dumps(job.plans)}),
                    **_messages(job.outbox),
                }
                for job in restore.jobs
            ],
            "nodes": [
                {
                    "id": node.record["id"],
                    "record": texts(node.record),
                    "devices": [device["id"] for device in node.record["devices"]],
                    **_messages(node.outbox),
                }
                for node in restore.nodes
            ],
            "decisions": [_decision(one) for one in restore.decisions],
        }
    )


def leave_request(leave: Leave) -> str:
    """Return the argument of ``leave_safe_mode``."""
    return dumps(
        {
            "lease": _lease(leave.lease),
            "owners": dict(leave.owners),
            "timers": _timers(leave.timers),
        }
    )


def announced_request(
    name: str, told: Announcement | None, *, text: str = "", limit: int | None = None
) -> str:
    """Return the argument of a decision about a token or a project."""
    return dumps(
        {
            "id": name,
            "text": text,
            **({} if limit is None else {"limit": limit}),
            "record": "" if told is None else dumps(told.record),
            **_messages(() if told is None else told.messages),
        }
    )


def _decision(decision: Decision) -> dict[str, Any]:
    stored = decision.stored or {}
    limit = stored.get("max_unfinished_jobs")
    return {
        "kind": decision.kind,
        "id": decision.id,
        "version": decision.version,
        **({} if decision.stored is None else {"text": dumps(stored)}),
        **({} if limit is None else {"limit": limit}),
    }


def _lease(lease: tuple[str, str]) -> dict[str, str]:
    name, holder = lease
    return {"name": name, "holder": holder}


def _timers(timers: Sequence[Timer]) -> list[dict[str, Any]]:
    return [{"id": timer.id, "after_ms": milliseconds(timer.after_s)} for timer in timers]


def _expectations(change: Change) -> list[dict[str, Any]]:
    expected = (
        ("version", Status.STALE, change.expect_version),
        ("attempt", Status.FENCED, change.expect_attempt),
        ("epoch", Status.NODE_EPOCH, change.expect_epoch),
    )
    return [
        {"field": field, "status": status, "value": value}
        for field, status, value in expected
        if value is not None
    ]


def _messages(outbox: Sequence[OutboxMessage]) -> dict[str, Any]:
    return {
        "outbox": [
            {"subject": message.subject, "type": message.type, "data": dumps(message.data)}
            for message in outbox
        ],
        "traceparent": traceparent(),
    }
