"""Turn what the store holds into what the API shows. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from frenzy_shared.domain.cluster import ClusterSnapshot, NodeRecord
from frenzy_shared.domain.job import PLACED, TERMINAL, JobRecord
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.plan import PlanSet, ResourcePlan
from frenzy_shared.messages.http import (
    DeviceAddress,
    DeviceView,
    JobView,
    NodeList,
    NodeView,
    PendingView,
    RankView,
    Timeline,
    TimelineEntry,
)
from frenzy_shared.times import moment

Json = Mapping[str, Any]


def job_view(record: JobRecord, plans: PlanSet | None, pending: Json | None) -> JobView:
    """Show a job; ``pending`` matters only while it waits."""
    placement = record.placement
    waiting = record.state not in PLACED | TERMINAL
    return JobView(
        id=record.id,
        project=record.project,
        name=record.name,
        state=record.state,
        version=record.version,
        attempt=record.attempt,
        priority=record.priority,
        reason=record.reason,
        message=record.message,
        labels=dict(record.labels),
        kind=placement.kind if placement else None,
        devices=_devices(placement),
        plan=_plan(record, plans),
        pending=_pending(pending) if waiting and pending else None,
        ranks=tuple(RankView(**asdict(outcome)) for outcome in record.outcomes),
        retries=record.retries,
        preemptions=record.preemptions,
        last_step=record.last_step,
        last_loss=record.last_loss,
        checkpoint_step=record.checkpoint_step,
        depends_on=record.depends_on,
        after=record.after,
        held_by=record.held_by,
        submitted_by=record.submitted_by,
        created_at=moment(record.created_ms),
        updated_at=moment(record.updated_ms),
        started_at=None if record.started_ms is None else moment(record.started_ms),
        finished_at=None if record.finished_ms is None else moment(record.finished_ms),
    )


def timeline_view(entries: Iterable[Json]) -> Timeline:
    """Show a job's transitions."""
    return Timeline(
        entries=tuple(
            TimelineEntry(
                time=moment(entry["time_ms"]),
                version=entry["version"],
                state=entry["state"],
                attempt=entry.get("attempt", 0),
                reason=entry.get("reason", ""),
                message=entry.get("message", ""),
            )
            for entry in entries
        )
    )


def nodes_view(cluster: ClusterSnapshot, safe_mode: str) -> NodeList:
    """Show all nodes and who owns their devices, by name."""
    nodes = sorted(cluster.nodes, key=lambda node: node.id)
    return NodeList(
        nodes=tuple(node_view(node, cluster.owners) for node in nodes), safe_mode=safe_mode
    )


def node_view(node: NodeRecord, owners: Mapping[str, str]) -> NodeView:
    """Show one node and who owns its devices."""
    return NodeView(
        id=node.id,
        state=node.state,
        epoch=node.epoch,
        address=node.address,
        reason=node.reason,
        drain=node.drain,
        labels=dict(node.labels),
        updated_at=moment(node.updated_ms),
        devices=tuple(
            DeviceView(
                id=device.id,
                kind=device.kind,
                memory_bytes=device.memory_bytes,
                compute_capability=device.compute_capability,
                emulated=device.emulated,
                problem=device.problem,
                **_owner(owners.get(f"{node.id}/{device.id}", "")),
            )
            for device in node.devices
        ),
    )


def _devices(placement: Placement | None) -> tuple[DeviceAddress, ...]:
    refs = placement.devices if placement else ()
    return tuple(DeviceAddress(node=ref.node, device=ref.device) for ref in refs)


def _plan(record: JobRecord, plans: PlanSet | None) -> ResourcePlan | None:
    """Return the plan of the placement; without one, the best plan so far."""
    options = plans.plans if plans else ()
    if record.placement is None:
        return options[0] if options else None
    chosen = record.placement.plan
    return next((plan for plan in options if plan.id == chosen), None)


def _pending(pending: Json) -> PendingView:
    return PendingView(
        reason=pending.get("reason", ""),
        message=pending.get("message", ""),
        nearest=pending.get("nearest") or "",
        position=pending.get("position"),
    )


def _owner(token: str) -> dict[str, Any]:
    """Split ``<job>#<attempt>``; a quarantine is shown as it is."""
    if not token or token.startswith("!"):
        return {"owner": token}
    job, _, attempt = token.partition("#")
    return {"owner": job, "attempt": int(attempt)}
