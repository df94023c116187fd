"""Builders for the store's tests, and a clock that tests move."""

import hashlib

from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.messages import subjects
from frenzy_shared.state.port import (
    Change,
    Claim,
    Json,
    NodeRegistration,
    OutboxMessage,
    Release,
    StateStore,
    Submission,
)


class FakeClock:
    """Stands still until told to move."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def advance(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


def event(kind: str, job: str, project: str = "default", **data: object) -> OutboxMessage:
    return OutboxMessage(subject=subjects.job_event(project, kind, job), type=kind, data=data)


def submission(
    job: str,
    *,
    project: str = "default",
    key: str = "",
    body: str = "body",
    labels: tuple[tuple[str, str], ...] = (),
    spec: Json | None = None,
    **fields: object,
) -> Submission:
    record = JobRecord(
        id=job,
        project=project,
        name=f"name-{job}",
        state=JobState.SUBMITTED,
        version=1,
        labels=labels,
        **fields,
    )
    return Submission(
        job=record,
        spec=spec or {"spec_version": 1, "global_batch_size": 8},
        idempotency_key=key or f"key-{job}",
        body_sha256=hashlib.sha256(body.encode()).hexdigest(),
        outbox=[event("submitted", job, project)],
    )


def registration(
    node: str, devices: int | tuple[str, ...] = 2, *, boot_id: str = "boot-1"
) -> NodeRegistration:
    names = (
        devices if isinstance(devices, tuple) else tuple(f"gpu-{index}" for index in range(devices))
    )
    return NodeRegistration(
        node=node,
        boot_id=boot_id,
        address="127.0.1.1",
        devices=tuple(
            Device(id=name, kind="emulated-a100-40", memory_bytes=42_949_672_960, emulated=True)
            for name in names
        ),
        outbox=[OutboxMessage(subject=subjects.node_event("joined", node), type="joined")],
    )


async def submit(store: StateStore, job: str, **options: object) -> None:
    assert (await store.submit(f"submit:{job}", submission(job, **options))).ok


async def queue(store: StateStore, job: str, **options: object) -> None:
    await submit(store, job, **options)
    assert (await move(store, job, "QUEUED")).ok


async def move(store: StateStore, job: str, state: str, **patch: object):
    """Make one arrow, expecting nothing of the present state."""
    record = await store.job(job)
    change = Change(
        entity=f"job:{job}",
        patch={"state": state, **patch},
        outbox=[event(state.lower(), job)],
    )
    return await store.apply(f"move:{job}:{record.version}:{state}", change)


async def up(store: StateStore, node: str, devices: int | tuple[str, ...] = 2) -> int:
    """Register a node and bring it up; return its epoch."""
    record = await store.node(node)
    count = record.epoch if record else 0
    result = await store.register_node(f"register:{node}:{count}", registration(node, devices))
    change = Change(entity=f"node:{node}", expect_epoch=result.epoch, patch={"state": "UP"})
    assert (await store.apply(f"up:{node}:{result.epoch}", change)).ok
    return result.epoch


def reserve(job: str, attempt: int, *claims: Claim, version: int | None = None) -> Change:
    return Change(
        entity=f"job:{job}",
        expect_version=version,
        allowed_from=frozenset({"QUEUED"}),
        patch={"state": "RESERVED", "attempt": attempt},
        claims=claims,
        outbox=[event("placed", job)],
    )


def release(job: str, attempt: int, node: str, device: str, to: str = "") -> Release:
    return Release(node=node, device=device, token=f"{job}#{attempt}", to=to)


async def placed(store, job="j1", node="n1", devices=2):
    """Make a job RESERVED on all devices of a new node; return the node's epoch."""
    epoch = await up(store, node, devices)
    await queue(store, job)
    claims = [Claim(node=node, device=f"gpu-{index}", epoch=epoch) for index in range(devices)]
    assert (await store.apply(f"place:{job}", reserve(job, 1, *claims))).ok
    return epoch
