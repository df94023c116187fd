"""What puts a store right whose history went backwards.

Three witnesses: the store's own records (too old, or none), the event history (every version of a
record, up to the moment at which something was not published any more), and what nodes hold. The
newest version of a record wins. What nodes hold beside it must end before its job may start again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from frenzy_scheduler.core.facts import TimerKind
from frenzy_scheduler.core.steps import Rules, quarantine_token, timer
from frenzy_scheduler.core.succession import as_successor, succeeding
from frenzy_shared.domain.cluster import Device, NodeRecord, NodeState, owner_token
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.job import PLACED, TERMINAL, JobRecord, JobState
from frenzy_shared.state.port import Timer

_RECOVERED: Final = "the store was put right; waiting for its heartbeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """Records as one source knows them."""

    jobs: Mapping[JobId, JobRecord]
    nodes: Mapping[NodeId, NodeRecord]
    # As their drain was last decided; kept for longer than events, and so than a node's records.
    drains: Mapping[NodeId, NodeRecord] = field(default_factory=dict[NodeId, NodeRecord])


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An attempt that a node has not ended yet; ``devices`` are empty when it did not say."""

    node: NodeId
    job: JobId
    attempt: int
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a node said about itself since the store is in SAFE MODE."""

    node: NodeId
    epoch: int
    devices: tuple[Device, ...]
    held: tuple[Held, ...]
    boot_id: str = ""
    address: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    host_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRepair:
    """A record to write. ``event``: the short type that announces it, "" when it was announced."""

    record: JobRecord
    present: JobRecord | None
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRepair:
    """A node's record to write; it is announced."""

    record: NodeRecord
    present: NodeRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """Everything to do. ``silent`` nodes have not said what they hold."""

    jobs: tuple[JobRepair, ...]
    nodes: tuple[NodeRepair, ...]
    owners: Mapping[str, str]
    leftovers: tuple[Held, ...] = ()
    silent: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an administrator says: ``dead`` nodes are switched off, nothing runs there; who."""

    dead: frozenset[NodeId] = frozenset()
    by: str = "an administrator"


NOTHING_GIVEN: Final = Given()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``hold_until_ms``: when whatever nodes still run has surely ended, in wall-clock time.

    Jobs that finished before ``forgotten_before_ms`` are missing in the store on purpose.
    """

    hold_until_ms: int
    forgotten_before_ms: int


@dataclass(slots=True)
class _Books:
    jobs: dict[JobId, JobRecord]
    owners: dict[str, str]
    leftovers: list[Held] = field(default_factory=list[Held])
    held_back: set[JobId] = field(default_factory=set[JobId])


def repairs(
    past: Witness,
    present: Witness,
    owners: Mapping[str, str],
    inventories: Iterable[Inventory],
    limits: Limits,
    *,
    given: Given = NOTHING_GIVEN,
) -> Repairs:
    """Return what makes the store say what is true; ``owners`` are the store's present ones."""
    told = {inventory.node: inventory for inventory in inventories}
    nodes = _newest_nodes(past, present, told, given)
    books = _Books(jobs=_newest_jobs(past, present, limits), owners=_free(nodes.values(), owners))
    _own(books)
    for inventory in told.values():
        for held in () if inventory.node in given.dead else inventory.held:
            _account_for(books, held, limits)
    return Repairs(
        jobs=tuple(_job_repairs(books.jobs, past, present)),
        nodes=tuple(
            NodeRepair(record=record, present=present.nodes.get(name))
            for name, record in sorted(nodes.items())
        ),
        owners=books.owners,
        leftovers=tuple(books.leftovers),
        silent=tuple(
            name
            for name, record in sorted(nodes.items())
            if name not in told and record.state is not NodeState.LOST
        ),
    )


def timers_of(record: JobRecord, rules: Rules, now_ms: int) -> tuple[Timer, ...]:
    """Return what must be looked at again in a restored job; every time limit begins anew."""
    backoff_s = (record.not_before_ms - now_ms) / 1000
    limits: dict[JobState, tuple[TimerKind, float | None]] = {
        JobState.SUBMITTED: (TimerKind.REPLAN, rules.replan_timeout_s),
        JobState.QUEUED: (TimerKind.BACKOFF, backoff_s if backoff_s > 0 else None),
        JobState.RESERVED: (TimerKind.PREPARE, rules.prepare_timeout_s),
        JobState.STARTING: (TimerKind.GO, rules.go_timeout_s),
        JobState.RUNNING: (TimerKind.MAX_DURATION, rules.max_duration_s),
        JobState.STOPPING: (TimerKind.STOP, 2 * rules.stop_grace_s),
    }
    kind, after_s = limits.get(record.state, (TimerKind.STOP, None))
    due = () if after_s is None else (timer(record, kind, after_s),)
    if record.state is JobState.RUNNING and succeeding(record) is not None:
        due = (*due, timer(as_successor(record), TimerKind.WARM, rules.warm_timeout_s))
    return due


def _newest_jobs(past: Witness, present: Witness, limits: Limits) -> dict[JobId, JobRecord]:
    newest = dict(present.jobs)
    for name, record in past.jobs.items():
        known = newest.get(name)
        finished_ms = record.finished_ms or record.updated_ms
        over = record.state in TERMINAL and finished_ms < limits.forgotten_before_ms
        if known is None and over:
            continue
        if known is None or known.version < record.version:
            newest[name] = record
    return newest


def _newest_nodes(
    past: Witness, present: Witness, told: Mapping[NodeId, Inventory], given: Given
) -> dict[NodeId, NodeRecord]:
    """Return all nodes; one that is not lost must prove itself again before it gets work."""
    found: dict[NodeId, NodeRecord] = {}
    for name in {*past.nodes, *present.nodes, *told}:
        inventory = told.get(name)
        # Of a node that changed nothing for longer than events are kept, it alone tells.
        known = [w.nodes[name] for w in (past, present) if name in w.nodes] or [
            _as_told(told[name])
        ]
        newest = _as_drained(max(known, key=lambda record: record.version), past)
        dead = name in given.dead
        lost = dead or (newest.state is NodeState.LOST and inventory is None)
        why = f"confirmed dead by {given.by}" if dead else newest.reason
        found[name] = replace(
            newest,
            version=newest.version + 1,
            epoch=max(
                [record.epoch for record in known] + ([inventory.epoch] if inventory else [])
            ),
            devices=inventory.devices if inventory else newest.devices,
            state=NodeState.LOST if lost else NodeState.SUSPECT,
            reason=why if lost else _RECOVERED,
        )
    return found


def _as_told(inventory: Inventory) -> NodeRecord:
    return NodeRecord(
        id=inventory.node,
        state=NodeState.SUSPECT,
        version=0,
        epoch=inventory.epoch,
        boot_id=inventory.boot_id,
        address=inventory.address,
        devices=inventory.devices,
        labels=inventory.labels,
        host_memory_bytes=inventory.host_memory_bytes,
    )


def _as_drained(record: NodeRecord, past: Witness) -> NodeRecord:
    """Return a node's record with the drain that was decided after what it tells."""
    decided = past.drains.get(record.id)
    if decided is None or decided.version <= record.version:
        return record
    return replace(
        record, version=decided.version, drain=decided.drain, drain_by_ms=decided.drain_by_ms
    )


def _free(nodes: Iterable[NodeRecord], owners: Mapping[str, str]) -> dict[str, str]:
    """Return every device without an owner; a quarantine stays, its node lifts it."""
    devices = {f"{node.id}/{device.id}": "" for node in nodes for device in node.devices}
    kept = {key: owner for key, owner in owners.items() if owner.startswith("!")}
    return devices | kept


def _own(books: _Books) -> None:
    """Give placed jobs their devices, and no others."""
    for name, record in list(books.jobs.items()):
        count = 0
        for one in _attempts(record):
            refs = one.placement.devices if one.placement is not None else ()
            mine = [ref for ref in refs if ref.node not in one.clean]
            count += len(mine)
            for ref in mine:
                books.owners[ref.key] = owner_token(name, one.attempt)
        if record.owned_devices != count:
            books.jobs[name] = replace(record, owned_devices=count)


def _attempts(record: JobRecord) -> tuple[JobRecord, ...]:
    """Return the job as its present attempt and as its successor has it, if it holds devices."""
    if record.state not in PLACED:
        return ()
    return (record,) if record.successor is None else (record, as_successor(record))


def _account_for(books: _Books, held: Held, limits: Limits) -> None:
    """Keep devices of an attempt that nobody knows, and its job, until it has surely ended."""
    record = books.jobs.get(held.job)
    if record is not None and _belongs(record, held):
        return
    books.leftovers.append(held)
    token = quarantine_token(owner_token(held.job, held.attempt))
    keys = [f"{held.node}/{device}" for device in held.devices] or [
        key for key in books.owners if key.startswith(f"{held.node}/")
    ]
    for key in keys:
        if not books.owners.get(key):
            books.owners[key] = token
    if record is not None and record.state not in TERMINAL and held.attempt >= record.attempt:
        held_back = _held_back(record, held, limits)
        if held.job in books.held_back:  # for two attempts that nobody remembers: one change
            held_back = replace(held_back, version=record.version)
        books.held_back.add(held.job)
        books.jobs[held.job] = held_back
        for one in _attempts(record):
            _release(books, one)


def _belongs(record: JobRecord, held: Held) -> bool:
    return any(
        one.attempt == held.attempt and held.node in one.placement.nodes
        for one in _attempts(record)
        if one.placement is not None
    )


def _held_back(record: JobRecord, held: Held, limits: Limits) -> JobRecord:
    """Return the record of a job whose newest attempt was placed after what anybody remembers."""
    state = JobState.SUBMITTED if record.state is JobState.SUBMITTED else JobState.QUEUED
    return replace(
        record,
        state=state,
        version=record.version + 1,
        attempt=held.attempt,
        placement=None,
        successor=None,
        owned_devices=0,
        not_before_ms=limits.hold_until_ms,
        reason="",
        message=f"attempt {held.attempt} on {held.node} was lost with the store's history; "
        "it ends before another begins",
    )


def _release(books: _Books, record: JobRecord) -> None:
    token = owner_token(record.id, record.attempt)
    for key, owner in books.owners.items():
        if owner == token:
            books.owners[key] = quarantine_token(token)


def _job_repairs(
    newest: Mapping[JobId, JobRecord], past: Witness, present: Witness
) -> Iterable[JobRepair]:
    for name, record in sorted(newest.items(), key=lambda item: item[1].sequence):
        known = present.jobs.get(name)
        if record == known:
            continue
        announced = max(w.jobs[name].version for w in (past, present) if name in w.jobs)
        event = "" if record.version <= announced else "requeued"
        if event and known is not None and known.state is record.state:
            event = "updated"
        yield JobRepair(record=record, present=known, event=event)
