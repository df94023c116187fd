"""The keeper's part of the store in memory: ``keeper.lua`` in Python."""

import secrets
from collections.abc import Callable, Sequence

from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import JobId, ProjectName
from frenzy_shared.domain.job import TERMINAL, JobRecord
from frenzy_shared.domain.project import Project
from frenzy_shared.messages.codec import from_json
from frenzy_shared.state import rules
from frenzy_shared.state.keeper import (
    Decision,
    History,
    JobRestore,
    Lease,
    Leave,
    NodeRestore,
    Restore,
)
from frenzy_shared.state.port import Result, Status, TokenRecord
from frenzy_shared.state.tables import Tables, copy

_SIDE = ("spec", "plans", "pending")


class MemoryKeeper:
    """Mixed into ``MemoryStore``; synchronous inside, hence atomic."""

    _tables: Tables
    _clock: Clock

    async def oldest_finished(self, limit: int) -> tuple[JobRecord, ...]:
        """Read the jobs that finished first."""
        oldest = sorted(self._tables.finished.items(), key=lambda item: (item[1], item[0]))
        records = (self._tables.records[f"job:{job}"] for job, _ in oldest[:limit])
        return tuple(from_json(JobRecord, record) for record in records)

    async def forget(self, job: JobId, *, version: int, timers: Sequence[str] = ()) -> Result:
        """Remove a finished job."""
        tables, entity = self._tables, f"job:{job}"
        record = tables.records.get(entity)
        if record is None:
            return Result(status=Status.NOT_FOUND, detail=entity)
        if record["version"] != version:
            detail = f"version is {record['version']}"
            return Result(status=Status.STALE, version=record["version"], detail=detail)
        if record["state"] not in TERMINAL:
            detail = f"state is {record['state']}"
            return Result(status=Status.BAD_STATE, version=version, detail=detail)
        if (key := tables.keys_of.pop(job, None)) is not None:
            tables.keys.drop(key)
        for timer in timers:
            tables.timers.pop(timer, None)
        for name in _SIDE:
            tables.documents.pop((name, job), None)
        for table in (tables.timelines, tables.series, tables.finished):
            table.pop(job, None)
        del tables.records[entity]
        return Result(status=Status.OK, version=version, id=job)

    async def gone_epoch(self) -> int:
        """Return the highest epoch of all forgotten nodes."""
        return self._tables.gone_epoch

    async def history(self) -> History:
        """Return where the store is in its history."""
        tables = self._tables
        tables.gen = tables.gen or secrets.token_hex(8)
        return History(
            gen=tables.gen,
            posted=tables.posted,
            safe_mode=tables.safe_mode,
            decisions=tables.decisions,
        )

    async def enter_safe_mode(self, why: str) -> None:
        """Refuse every change from now on."""
        self._tables.safe_mode = why

    async def restore(self, op: str, restore: Restore) -> Result:
        """Write records as they were."""
        return self._tables.once(op, lambda: self._restore(restore))

    async def leave_safe_mode(self, op: str, leave: Leave) -> Result:
        """Replace all owners, set timers, and take changes again."""
        return self._tables.once(op, lambda: self._leave(leave))

    def _restore(self, restore: Restore) -> Result:
        def write() -> None:
            self._tables.gen = restore.gen
            self._tables.posted = max(self._tables.posted, restore.posted)
            for job in restore.jobs:
                self._restore_job(job)
            for node in restore.nodes:
                self._restore_node(node)
            self._restore_decisions(restore.decisions)

        return self._if_unsafe(restore.lease, write)

    def _leave(self, leave: Leave) -> Result:
        def write() -> None:
            now = self._clock.now_ms()
            self._tables.owners = dict(leave.owners)
            for timer in leave.timers:
                self._tables.timers[timer.id] = now + rules.milliseconds(timer.after_s)
            self._tables.safe_mode = ""

        return self._if_unsafe(leave.lease, write)

    def _if_unsafe(self, lease: Lease, write: Callable[[], None]) -> Result:
        if not self._tables.safe_mode:
            return Result(status=Status.BAD_STATE, detail="the store is not in safe mode")
        name, holder = lease
        present = self._tables.leases.get(name)
        if present != holder:
            detail = f"{name} is held by {present or 'nobody'}"
            return Result(status=Status.LEASE, detail=detail)
        write()
        return Result(status=Status.OK)

    def _restore_job(self, restored: JobRestore) -> None:
        tables, record = self._tables, copy(restored.record)
        job, entity = record["id"], f"job:{record['id']}"
        tables.records[entity] = record
        tables.sort_jobs()
        tables.arrivals = max(tables.arrivals, record["sequence"])
        tables.finished.pop(job, None)
        if record["state"] in TERMINAL:
            tables.finished[job] = record["updated_ms"]
        if restored.spec is not None:
            tables.documents["spec", job] = copy(restored.spec)
        if restored.plans is not None:
            tables.documents["plans", job] = copy(restored.plans)
        if restored.timeline:
            tables.timelines[job] = copy(list(restored.timeline))
        tables.post(entity, restored.outbox)

    def _restore_node(self, restored: NodeRestore) -> None:
        entity = f"node:{restored.record['id']}"
        self._tables.records[entity] = copy(restored.record)
        self._tables.post(entity, restored.outbox)

    def _restore_decisions(self, decisions: Sequence[Decision]) -> None:
        tables = self._tables
        known = tables.decisions
        for one in decisions:
            if one.version <= known:
                continue
            tables.decisions = max(tables.decisions, one.version)
            if one.kind == "project" and one.stored is not None:
                tables.projects[ProjectName(one.id)] = from_json(Project, one.stored)
            elif one.stored is not None:
                tables.tokens[one.id] = from_json(TokenRecord, one.stored)
            else:
                tables.tokens.pop(one.id, None)
