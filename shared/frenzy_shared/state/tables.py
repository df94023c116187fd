"""What the in-memory store holds, and how it changes: ``functions.lua`` in Python.

Both must answer every call alike; the contract tests run each step against the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from frenzy_shared.clock import Clock
from frenzy_shared.domain.cluster import NodeState, owner_token
from frenzy_shared.domain.job import TERMINAL
from frenzy_shared.domain.project import Project
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state import rules
from frenzy_shared.state.port import (
    Change,
    Json,
    NodeForgetting,
    NodeRegistration,
    OutboxEntry,
    OutboxMessage,
    Result,
    Status,
    Submission,
    TokenRecord,
)
from frenzy_shared.state.records import dumps, in_safe_mode, loads, message_id
from frenzy_shared.telemetry import traceparent

V = TypeVar("V")


class Expiring(Generic[V]):
    """Values that are forgotten after a time, much the same for all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, tuple[V, float]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> V | None:
        """Return the value, None when there is none any more."""
        value, until_ms = self._values.get(key, (None, 0.0))
        return value if self._clock.now_ms() < until_ms else None

    def put(self, key: str, value: V, ttl_s: float) -> None:
        """Keep a value for ``ttl_s`` seconds; drop those whose time is over."""
        now = self._clock.now_ms()
        self._values.pop(key, None)
        self._values[key] = (value, now + ttl_s * 1000)
        while self._values[oldest := next(iter(self._values))][1] <= now:
            del self._values[oldest]

    def drop(self, key: str) -> None:
        """Forget a value."""
        self._values.pop(key, None)


class Tables:
    """All state, and the three functions that change it. Synchronous, hence atomic."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records: dict[str, dict[str, Any]] = {}  # by entity
        self.documents: dict[tuple[str, str], Json] = {}  # by (name, job)
        self.timelines: dict[str, list[Json]] = {}  # by job
        self.series: dict[str, list[Json]] = {}  # by job
        self.owners: dict[str, str] = {}  # by "<node>/<device>"
        self.timers: dict[str, int] = {}  # due, ms
        self.leases: Expiring[str] = Expiring(clock)
        self.outbox: list[OutboxEntry] = []
        self.projects: dict[str, Project] = {}
        self.tokens: dict[str, TokenRecord] = {}
        self.decisions = 0  # the number of the newest one
        self._ops: Expiring[Result] = Expiring(clock)
        self.keys: Expiring[tuple[str, str]] = Expiring(clock)  # job and body by idempotency key
        self.keys_of: dict[str, str] = {}  # by job
        self.finished: dict[str, int] = {}  # by job: when, ms
        self.gen = ""
        self.gone_epoch = self.gone_version = 0  # the highest of all forgotten nodes
        self.safe_mode = ""
        self.arrivals = 0
        self.posted = 0

    def jobs(self) -> list[dict[str, Any]]:
        """Return all job records by arrival (dicts keep insertion order)."""
        return [record for entity, record in self.records.items() if entity.startswith("job:")]

    def sort_jobs(self) -> None:
        """Put the jobs back into the order of their arrival."""
        jobs = sorted(self.jobs(), key=lambda record: record["sequence"])
        for record in jobs:
            self.records[f"job:{record['id']}"] = self.records.pop(f"job:{record['id']}")

    def nodes(self) -> list[dict[str, Any]]:
        """Return all node records by name."""
        nodes = sorted(entity for entity in self.records if entity.startswith("node:"))
        return [self.records[entity] for entity in nodes]

    def refuse_in_safe_mode(self, op: str) -> None:
        """Raise ``SafeMode`` while nothing may change, except to repeat an earlier answer."""
        if self.safe_mode and self._ops.get(op) is None:
            raise in_safe_mode(self.safe_mode)

    def once(self, op: str, action: Callable[[], Result]) -> Result:
        """Run ``action`` unless ``op`` already took effect; then repeat its answer."""
        remembered = self._ops.get(op)
        if remembered is not None:
            return remembered
        result = action()
        if result.ok:
            self._ops.put(op, result, rules.OP_MEMO_S)
        return result

    def submit(self, submission: Submission) -> Result:
        """Accept a job."""
        job, entity = submission.job, f"job:{submission.job.id}"
        key = f"{job.project}:{submission.idempotency_key}"
        refusal = self._repeated(key, submission) or self._over_quota(job.project)
        if refusal is not None:
            return refusal
        self.keys.put(key, (job.id, submission.body_sha256), rules.IDEMPOTENCY_S)
        self.keys_of[job.id] = key
        self.arrivals += 1
        now = self.clock.now_ms()
        times = {"created_ms": now, "updated_ms": now}
        self.records[entity] = copy({**to_json(job), "sequence": self.arrivals, **times})
        self.documents["spec", job.id] = copy(submission.spec)
        self._tell(entity)
        self.post(entity, submission.outbox)
        return Result(status=Status.OK, id=job.id, version=1)

    def apply(self, change: Change) -> Result:
        """Make one transition."""
        record = self.records.get(change.entity)
        refusal = self._lease_lost(change) or _unexpected(change, record)
        if refusal is not None or record is None:
            return refusal or Result(status=Status.NOT_FOUND, detail=change.entity)
        owners = self._claimed(change)
        if isinstance(owners, Result):
            return replace(owners, version=record["version"])
        owned = record.get("owned_devices", 0) + len(owners)
        owned -= self._released(change, owners)
        state = change.patch.get("state", record["state"])
        if owned and state in rules.OWNS_NOTHING:
            detail = f"{state} while {owned} devices are owned"
            return Result(status=Status.BAD_STATE, version=record["version"], detail=detail)
        self._write(change, record, owned)
        for device, owner in owners.items():
            self._set_owner(device, owner)
        self.post(change.entity, change.outbox)
        return Result(status=Status.OK, version=record["version"])

    def register_node(self, registration: NodeRegistration) -> Result:
        """Register an agent."""
        entity = f"node:{registration.node}"
        earlier = self.records.get(entity)
        last = earlier or {"epoch": self.gone_epoch, "version": self.gone_version}
        epoch, version = max(last["epoch"] + 1, registration.least_epoch), last["version"] + 1
        record = {
            **(earlier or {}),
            "id": registration.node,
            "state": NodeState.JOINING,
            "version": version,
            "epoch": epoch,
            "boot_id": registration.boot_id,
            "address": registration.address,
            "devices": [to_json(device) for device in registration.devices],
            "labels": registration.labels,
            "host_memory_bytes": registration.host_memory_bytes,
            "reason": "",
            "updated_ms": self.clock.now_ms(),
        }
        self.records[entity] = copy(record)
        rebooted = earlier is not None and earlier["boot_id"] != registration.boot_id
        self._take_inventory(registration, rebooted=rebooted)
        self.post(entity, registration.outbox)
        return Result(status=Status.OK, id=registration.node, version=version, epoch=epoch)

    def forget_node(self, forgetting: NodeForgetting) -> Result:
        """Remove a lost node."""
        entity, prefix = f"node:{forgetting.node}", f"{forgetting.node}/"
        record = self.records.get(entity)
        if record is None:
            return Result(status=Status.NOT_FOUND, detail=entity)
        version = record["version"]
        if version != forgetting.expect_version:
            detail = f"version is {version}"
            return Result(status=Status.STALE, version=version, detail=detail)
        owned = [d for d, owner in self.owners.items() if owner and d.startswith(prefix)]
        if record["state"] != NodeState.LOST or owned:
            detail = f"{owned[0]} is held by {self.owners[owned[0]]}" if owned else ""
            detail = detail if record["state"] == NodeState.LOST else f"state is {record['state']}"
            return Result(status=Status.BAD_STATE, version=version, detail=detail)
        record["version"] += 1
        self.post(entity, forgetting.outbox)
        self.gone_epoch = max(self.gone_epoch, record["epoch"])
        self.gone_version = max(self.gone_version, record["version"])
        self.owners = {d: o for d, o in self.owners.items() if not d.startswith(prefix)}
        for timer in forgetting.timers:
            self.timers.pop(timer, None)
        del self.records[entity]
        return Result(status=Status.OK, version=record["version"], id=forgetting.node)

    # -- submit -------------------------------------------------------------------------------

    def _repeated(self, key: str, submission: Submission) -> Result | None:
        earlier = self.keys.get(key)
        if earlier is not None:
            job, sha256 = earlier
            version: int = self.records[f"job:{job}"]["version"]
            if sha256 == submission.body_sha256:
                return Result(status=Status.EXISTS, id=job, version=version)
            detail = "the key came with another body"
            return Result(status=Status.CONFLICT, id=job, version=version, detail=detail)
        existing = self.records.get(f"job:{submission.job.id}")
        if existing is None:
            return None
        return Result(
            status=Status.CONFLICT,
            id=submission.job.id,
            version=existing["version"],
            detail="the job id is in use",
        )

    def _over_quota(self, project: str) -> Result | None:
        record = self.projects.get(project)
        limit = None if record is None else record.max_unfinished_jobs
        unfinished = sum(
            job["project"] == project and job["state"] not in TERMINAL for job in self.jobs()
        )
        if limit is None or unfinished < limit:
            return None
        return Result(status=Status.QUOTA, detail=f"{unfinished} of {limit} unfinished jobs")

    # -- apply --------------------------------------------------------------------------------

    def _lease_lost(self, change: Change) -> Result | None:
        if change.lease is None:
            return None
        name, holder = change.lease
        present = self.leases.get(name)
        if present == holder:
            return None
        return Result(status=Status.LEASE, detail=f"{name} is held by {present or 'nobody'}")

    def _claimed(self, change: Change) -> dict[str, str] | Result:
        """Return the owners that the claims make, or why one of them is refused."""
        owners: dict[str, str] = {}
        for claim in change.claims:
            node = self.records.get(f"node:{claim.node}")
            problem = _node_problem(claim.node, claim.epoch, node)
            if problem:
                return Result(status=Status.NODE_EPOCH, detail=problem)
            device = f"{claim.node}/{claim.device}"
            owner = owners.get(device, self.owners.get(device))
            if owner != rules.FREE:
                detail = f"{device} is unknown" if owner is None else f"{device} is held by {owner}"
                return Result(status=Status.TAKEN, detail=detail)
            job, beside = change.entity.removeprefix("job:"), change.claim_attempt
            attempt = change.patch["attempt"] if beside is None else beside
            owners[device] = owner_token(job, attempt)
        return owners

    def _released(self, change: Change, owners: dict[str, str]) -> int:
        """Add the releases to ``owners``; return how many of the job's devices they give up."""
        count = 0
        for release in change.releases:
            device = f"{release.node}/{release.device}"
            if owners.get(device, self.owners.get(device)) == release.token:
                owners[device] = release.to
                count += rules.is_job_token(release.token)
        return count

    def _write(self, change: Change, record: dict[str, Any], owned: int) -> None:
        before = record["state"]
        if change.entity.startswith("job:"):
            record["owned_devices"] = owned
        if change.patch:
            record |= copy(change.patch)
            record["version"] += 1
            record["updated_ms"] = self.clock.now_ms()
        if record["state"] != before:
            self._tell(change.entity)
            if record["state"] in TERMINAL:
                self.finished[record["id"]] = record["updated_ms"]
        _, job = rules.split_entity(change.entity)
        for name, content in change.documents.items():
            if content is None:
                self.documents.pop((name, job), None)
            else:
                self.documents[name, job] = copy(content)
        for timer_id in change.clear_timers:
            self.timers.pop(timer_id, None)
        for timer in change.set_timers:
            self.timers[timer.id] = self.clock.now_ms() + rules.milliseconds(timer.after_s)

    def _set_owner(self, device: str, owner: str) -> None:
        """Store an owner; a device that its node no longer has is forgotten once free."""
        node, _, name = device.partition("/")
        present = {entry["id"] for entry in self.records[f"node:{node}"]["devices"]}
        if owner == rules.FREE and name not in present:
            self.owners.pop(device, None)
        else:
            self.owners[device] = owner

    # -- register_node ------------------------------------------------------------------------

    def _take_inventory(self, registration: NodeRegistration, *, rebooted: bool) -> None:
        prefix = f"{registration.node}/"
        for device in registration.devices:
            self.owners.setdefault(prefix + device.id, rules.FREE)
        for known in [key for key in self.owners if key.startswith(prefix)]:
            owner = self.owners[known]
            lifted = rebooted and owner.startswith(rules.LOST)
            self._set_owner(known, rules.FREE if lifted else owner)

    # -- what every change leaves behind ------------------------------------------------------

    def _tell(self, entity: str) -> None:
        kind, job = rules.split_entity(entity)
        if kind != "job":
            return
        record = self.records[entity]
        entry = {"time_ms": record["updated_ms"]}
        entry |= {key: record[key] for key in ("version", "state", "reason", "message", "attempt")}
        timeline = self.timelines.setdefault(job, [])
        timeline.append(entry)
        del timeline[: -rules.TIMELINE_KEEP]

    def post(self, entity: str, messages: Sequence[OutboxMessage]) -> None:
        """Leave messages about an entity as it is now."""
        self.post_record(entity, self.records[entity]["id"], self.records[entity], messages)

    def post_record(
        self, entity: str, name: str, record: Json, messages: Sequence[OutboxMessage]
    ) -> None:
        """Leave messages about a record; ``name`` is what their ids begin with."""
        for index, message in enumerate(messages):
            self.posted += 1
            entry = OutboxEntry(
                cursor=cursor(self.posted),
                message_id=message_id(name, record["version"], index),
                subject=message.subject,
                type=message.type,
                entity=entity,
                version=record["version"],
                time_ms=self.clock.now_ms(),
                data=copy(message.data),
                record=copy(record),
                traceparent=traceparent() or record.get("traceparent", ""),
                history=f"{self.gen}:{self.posted}",
            )
            self.outbox.append(entry)


def copy(value: Any) -> Any:  # noqa: ANN401 - JSON holds anything
    """Return what a value becomes by being stored and read again."""
    return loads(dumps(value))


def cursor(number: int) -> str:
    """Return an outbox cursor; cursors compare as text."""
    return f"{number:016d}"


def _unexpected(change: Change, record: Json | None) -> Result | None:
    if record is None:
        return Result(status=Status.NOT_FOUND, detail=change.entity)
    version: int = record["version"]
    expected = (
        (Status.STALE, "version", change.expect_version),
        (Status.FENCED, "attempt", change.expect_attempt),
        (Status.NODE_EPOCH, "epoch", change.expect_epoch),
    )
    for status, name, value in expected:
        if value is not None and record[name] != value:
            return Result(status=status, version=version, detail=f"{name} is {record[name]}")
    if change.allowed_from and record["state"] not in change.allowed_from:
        detail = f"state is {record['state']}"
        return Result(status=Status.BAD_STATE, version=version, detail=detail)
    return None


def _node_problem(name: str, epoch: int, node: Json | None) -> str:
    if node is None:
        return f"node {name} is unknown"
    if node["state"] != NodeState.UP:
        return f"node {name} is {node['state']}"
    if node["epoch"] != epoch:
        return f"node {name} has epoch {node['epoch']}"
    return ""
