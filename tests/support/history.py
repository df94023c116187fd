"""What happened, as submitters, the event stream, the store and the ranks themselves saw it; and a
checker that tells whether it may have happened.

The invariants are those of docs/explanation/reliability.md. The order of the event stream is the
order of the store's changes: the outbox is written by the changes and relayed in order.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from frenzy_shared.domain.job import PLACED, TERMINAL, JobState
from frenzy_shared.domain.transitions import transition

KEY_LABEL = "key"  # every recorded submission carries its idempotency key as this label
_CLOCKS_MS = 50  # wall clocks of the store and of ranks are one machine's; rounding and scheduling


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One accepted submission as its client saw it: the same key may be accepted many times."""

    key: str
    body: str
    job: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of the stream. ``record`` is the job's or node's record after the change."""

    sequence: int
    id: str
    entity: str
    version: int
    type: str
    time_ms: float
    record: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One rank's process by its own account. ``*_s`` counts since boot, ``*_ms`` is wall time.

    The end is the last sign of life: a killed rank ends a little later than it could say.
    ``contested``: the device was locked by another rank when this one started.
    """

    job: str
    attempt: int
    rank: int
    node: str
    device: str
    began_s: float
    ended_s: float
    began_ms: float
    ended_ms: float
    finished: bool
    contested: bool = False


@dataclass(frozen=True, kw_only=True)
class Final:
    """What is left when all is over."""

    jobs: dict[str, dict[str, Any]]
    owners: dict[str, str]
    outbox_lag: int = 0
    dead_letters: int = 0
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that one run of a system recorded. ``silent`` jobs have ranks without ``runs``."""

    submissions: tuple[Submission, ...]
    events: tuple[Event, ...]
    runs: tuple[Run, ...]
    final: Final
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One broken invariant, and what shows it."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


def check(history: History) -> list[Violation]:
    """Return every violation of I1-I10 that the history of a finished run shows."""
    owned = list(_ownership(history.events))
    checks = (
        ("I1", _lost(history)),
        ("I2", _repeated(history)),
        ("I3", _double_owners(owned)),
        ("I3", _double_runs(history.runs)),
        ("I3", _runs_without_ownership(history.runs, owned)),
        ("I4", _chains(history.events)),
        ("I5", _owning_when_over(history)),
        ("I6", _leftovers(history.final)),
        ("I7", _stream_and_store(history)),
        ("I8", _backlog(history.final)),
        ("I9", _unexplained(history.final)),
        ("I10", _not_done(history)),
    )
    return [Violation(invariant=name, what=what) for name, found in checks for what in found]


# -- I1, I2: submissions --------------------------------------------------------------------------


def _lost(history: History) -> Iterator[str]:
    announced = {event.entity for event in history.events if event.type == "submitted"}
    for job in {submission.job for submission in history.submissions}:
        if job not in history.final.jobs:
            yield f"accepted job {job} is not in the store"
        if f"job:{job}" not in announced:
            yield f"accepted job {job} was never announced"


def _repeated(history: History) -> Iterator[str]:
    by_key: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for submission in history.submissions:
        by_key[submission.key].add((submission.job, submission.body))
    stored: dict[str, set[str]] = defaultdict(set)
    for job, record in history.final.jobs.items():
        if (key := dict(record["labels"]).get(KEY_LABEL)) is not None:
            stored[key].add(job)
    for key in by_key.keys() | stored.keys():
        jobs = {job for job, _ in by_key[key]} | stored[key]
        if len(jobs) > 1:
            yield f"key {key} made {len(jobs)} jobs: {sorted(jobs)}"
        if len({body for _, body in by_key[key]}) > 1:
            yield f"key {key} was accepted with different bodies"


# -- I3: ownership and physical runs --------------------------------------------------------------


@dataclass(kw_only=True)
class _Owned:
    """One device in the hands of one attempt, in stream order and in time."""

    device: str  # "<node>/<device>"
    job: str
    attempt: int
    since: int
    since_ms: float
    until: int | None = None
    until_ms: float = field(default=float("inf"))

    @property
    def token(self) -> str:
        return f"{self.job}#{self.attempt}"


def _ownership(events: Sequence[Event]) -> Iterator[_Owned]:
    """Read ownership from records: claimed with RESERVED, given up when the node is ``clean``.

    A successor claims with ``moving``, beside the attempt, and has a ``clean`` of its own.
    """
    held: dict[str, list[_Owned]] = defaultdict(list)
    for event in events:
        kind, _, job = event.entity.partition(":")
        if kind != "job":
            continue
        record = event.record
        successor = record.get("successor") or {"attempt": 0, "clean": ()}
        if event.type == "placed":
            yield from held.pop(job, ())
            held[job] = _claimed(event, record)
        known = {owned.attempt for owned in held[job]}
        if event.type == "moving" and successor["attempt"] not in known:
            held[job] += _claimed(event, successor)
        clean = {record["attempt"]: record["clean"], successor["attempt"]: successor["clean"]}
        for owned in held[job]:
            node = owned.device.partition("/")[0]
            gone = node in clean.get(owned.attempt, ()) or _taken_over(owned, record)
            if owned.until is None and gone:
                owned.until, owned.until_ms = event.sequence, event.time_ms
    for rest in held.values():
        yield from rest


def _taken_over(owned: _Owned, record: dict[str, Any]) -> bool:
    """Tell whether a successor is the attempt now, and the job owns no more than what that has."""
    others = owned.attempt < record["attempt"]
    return others and record["owned_devices"] == len(record["placement"]["devices"])


def _claimed(event: Event, attempt: dict[str, Any]) -> list[_Owned]:
    return [
        _Owned(
            device=f"{ref['node']}/{ref['device']}",
            job=event.entity.removeprefix("job:"),
            attempt=attempt["attempt"],
            since=event.sequence,
            since_ms=event.time_ms,
        )
        for ref in attempt["placement"]["devices"]
    ]


def _double_owners(owned: Sequence[_Owned]) -> Iterator[str]:
    by_device: dict[str, list[_Owned]] = defaultdict(list)
    for one in owned:
        by_device[one.device].append(one)
    for device, all_of_it in by_device.items():
        all_of_it.sort(key=lambda one: one.since)
        for before, after in zip(all_of_it, all_of_it[1:], strict=False):
            if before.until is None or before.until > after.since:
                yield f"{device} was given to {after.token} while {before.token} owned it"


def _double_runs(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.contested:
            yield f"{_name(run)} found {run.node}/{run.device} locked by another rank"
    living: list[Run] = []
    for one in sorted(runs, key=lambda run: run.began_s):
        living = [other for other in living if other.ended_s >= one.began_s]
        for other in living:
            same_attempt = (one.job, one.attempt) == (other.job, other.attempt)
            if one.job == other.job and not same_attempt:
                yield f"two live attempts: {_name(other)} and {_name(one)}"
            elif one.job == other.job and one.rank == other.rank:
                yield f"{_name(one)} ran twice at once"
            elif (one.node, one.device) == (other.node, other.device):
                yield f"{_name(other)} and {_name(one)} shared {one.node}/{one.device}"
        living.append(one)


def _runs_without_ownership(runs: Sequence[Run], owned: Sequence[_Owned]) -> Iterator[str]:
    by_token: dict[tuple[str, str, int], list[_Owned]] = defaultdict(list)
    for one in owned:
        by_token[one.device, one.job, one.attempt].append(one)
    for run in runs:
        device = f"{run.node}/{run.device}"
        mine = by_token.get((device, run.job, run.attempt), [])
        if not mine:
            yield f"{_name(run)} ran on {device}, which it never owned"
        for one in mine:
            if run.began_ms < one.since_ms - _CLOCKS_MS:
                yield f"{_name(run)} began before it owned {device}"
            if run.ended_ms > one.until_ms + _CLOCKS_MS:
                late_ms = run.ended_ms - one.until_ms
                yield f"{_name(run)} lived {late_ms:.0f} ms after it had given up {device}"


def _name(run: Run) -> str:
    return f"{run.job}#{run.attempt} rank {run.rank}"


# -- I4: versions and states ----------------------------------------------------------------------


def _chains(events: Sequence[Event]) -> Iterator[str]:
    seen: set[str] = set()
    last: dict[str, Event] = {}
    for event in events:
        if event.id in seen:
            yield f"event id {event.id} is in the stream twice"
        seen.add(event.id)
        before = last.get(event.entity)
        yield from _link(before, event)
        if before is None or event.version >= before.version:
            last[event.entity] = event


def _link(before: Event | None, event: Event) -> Iterator[str]:
    expected = 1 if before is None else before.version + 1
    repeats = before is not None and event.version == before.version
    if event.version != expected and not repeats:
        yield f"{event.entity}: version {event.version} came where {expected} was due"
    if not event.entity.startswith("job:") or repeats:
        return
    if before is None:
        if event.record["state"] != JobState.SUBMITTED:
            yield f"{event.entity} began as {event.record['state']}"
        return
    old, new = JobState(before.record["state"]), JobState(event.record["state"])
    if old is not new:
        try:
            transition(old, new)
        except ValueError:
            yield f"{event.entity}: {old} -> {new} in version {event.version} is no arrow"
    due = _attempt_due(before.record, old, new)
    if event.record["attempt"] != due:
        number = event.record["attempt"]
        yield f"{event.entity}: attempt {number} where {due} was due, version {event.version} ({new})"


def _attempt_due(before: dict[str, Any], old: JobState, new: JobState) -> int:
    """Return the attempt after a change: a new number when placed, its own for a successor."""
    successor = before.get("successor")
    newest: int = successor["attempt"] if successor else before["attempt"]
    if (old, new) == (JobState.STOPPING, JobState.STARTING):
        return newest
    placed = old is not new and new is JobState.RESERVED
    return newest + 1 if placed else before["attempt"]


# -- I5-I10: the end ------------------------------------------------------------------------------


def _owning_when_over(history: History) -> Iterator[str]:
    for event in history.events:
        if not event.entity.startswith("job:"):
            continue
        record = event.record
        if record["state"] not in PLACED and record["owned_devices"]:
            yield f"{event.entity} was {record['state']} with {record['owned_devices']} devices"
    over = {job for job, record in history.final.jobs.items() if record["state"] in TERMINAL}
    for device, owner in history.final.owners.items():
        if owner.partition("#")[0] in over:
            yield f"{device} still belongs to {owner}, which is over"


def _leftovers(final: Final) -> Iterator[str]:
    for job, record in final.jobs.items():
        if record["state"] not in TERMINAL:
            yield f"{job} is still {record['state']}: {record['message']}"
    for device, owner in final.owners.items():
        if owner:
            yield f"{device} is not free: {owner}"
    for process in final.processes:
        yield f"a process was left: {process}"


def _stream_and_store(history: History) -> Iterator[str]:
    newest: dict[str, int] = {}
    for event in history.events:
        if event.version < newest.get(event.entity, 0):
            yield f"{event.entity}: version {event.version} came after {newest[event.entity]}"
        newest[event.entity] = max(newest.get(event.entity, 0), event.version)
    for job, record in history.final.jobs.items():
        told = newest.get(f"job:{job}", 0)
        if told != record["version"]:
            yield f"job:{job} has version {record['version']}, the stream ends at {told}"


def _backlog(final: Final) -> Iterator[str]:
    if final.outbox_lag:
        yield f"{final.outbox_lag} messages are still in the outbox"
    if final.dead_letters:
        yield f"{final.dead_letters} messages were given up"


def _unexplained(final: Final) -> Iterator[str]:
    for job, record in final.jobs.items():
        failed = record["state"] in {JobState.FAILED, JobState.CANCELLED}
        if failed and not (record["reason"] and record["message"]):
            yield f"{job} is {record['state']} and nobody says why"


def _not_done(history: History) -> Iterator[str]:
    done = {(run.job, run.attempt, run.rank) for run in history.runs if run.finished}
    for job, record in history.final.jobs.items():
        if record["state"] != JobState.SUCCEEDED or job in history.silent:
            continue
        for rank in range(len(record["placement"]["devices"])):
            if (job, record["attempt"], rank) not in done:
                yield f"{job}#{record['attempt']} succeeded, but rank {rank} did not come to its end"
