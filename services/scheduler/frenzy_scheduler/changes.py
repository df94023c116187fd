"""Write a step of the core as one change for the store."""

from collections.abc import Mapping
from typing import Any, Final

from frenzy_scheduler.core.steps import JobEvent, Step
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.port import Change, Json, OutboxMessage

_KEPT_BY_STORE: Final = frozenset({"version", "owned_devices", "updated_ms"})

PLAN: Final = "plan"  # in the data of an event: what the job runs with from now on

Lease = tuple[str, str]


def job_change(
    step: Step,
    *,
    lease: Lease | None = None,
    documents: Mapping[str, Json | None] | None = None,
    plan: ResourcePlan | None = None,
) -> Change:
    """Return the change that takes the store from the record before to the record after.

    A step with an event always patches at least the message, because the event's id carries the
    version that the patch makes. A step without one, such as a node's evidence on the way to the
    next state, is announced as ``updated``: every version is an event, so a reader sees a gap.
    The events of a step that claims devices carry the ``plan`` it is for.
    """
    patch = _difference(step.before, step.after)
    if step.events and not patch:
        patch = {"message": step.after.message}
    events = step.events
    if patch and not events:
        events = (JobEvent(kind="updated", data={"changed": sorted(patch)}),)
    return Change(
        entity=f"job:{step.before.id}",
        expect_version=step.before.version,
        lease=lease,
        patch=patch,
        documents=documents or {},
        claims=step.claims,
        claim_attempt=step.claim_attempt,
        releases=step.releases,
        set_timers=step.set_timers,
        clear_timers=step.clear_timers,
        outbox=tuple(_message(step.after, event, plan) for event in events),
    )


def _difference(before: JobRecord, after: JobRecord) -> dict[str, Any]:
    old, new = to_json(before), to_json(after)
    return {
        name: value
        for name, value in new.items()
        if name not in _KEPT_BY_STORE and old[name] != value
    }


def _message(record: JobRecord, event: JobEvent, plan: ResourcePlan | None) -> OutboxMessage:
    subject = subjects.job_event(record.project, event.kind, record.id)
    data = dict(event.data) if plan is None else {**event.data, PLAN: to_json(plan)}
    return OutboxMessage(subject=subject, type=event.kind, data=data)
