"""The store in memory: for tests without a server. Complete, with the server's semantics."""

import asyncio
from collections.abc import Mapping, Sequence

from frenzy_shared.clock import Clock, SystemClock
from frenzy_shared.domain.cluster import ClusterSnapshot, NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId, ProjectName
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.domain.project import Project
from frenzy_shared.messages.codec import from_json
from frenzy_shared.state import rules
from frenzy_shared.state.memory_decisions import MemoryDecisions
from frenzy_shared.state.memory_keeper import MemoryKeeper
from frenzy_shared.state.memory_secrets import MemorySecrets
from frenzy_shared.state.port import (
    Change,
    DueTimer,
    JobPage,
    Json,
    NodeForgetting,
    NodeRegistration,
    OutboxEntry,
    Result,
    RunGroup,
    StoreHealth,
    Submission,
)
from frenzy_shared.state.records import carries, page_limit, page_start, token_before
from frenzy_shared.state.tables import Tables, copy, cursor


class MemoryStore(MemoryKeeper, MemorySecrets, MemoryDecisions):
    """A complete ``StateStore`` and ``Keeper`` in one process; a fake clock moves its time."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._tables = Tables(self._clock)
        self._runs: dict[str, dict[str, Json]] = {}  # by group, then by run
        self._revisions: dict[str, int] = {}  # of groups
        self._revision = 0
        self._usage: Json | None = None
        self._cursor = cursor(0)
        self._posted = asyncio.Event()  # replaced by a fresh one each time it is set

    # -- changes ------------------------------------------------------------------------------

    async def submit(self, op: str, submission: Submission) -> Result:
        """Accept a job."""
        rules.check_submission(submission)
        self._tables.refuse_in_safe_mode(op)
        return self._announce(self._tables.once(op, lambda: self._tables.submit(submission)))

    async def apply(self, op: str, change: Change) -> Result:
        """Make one transition."""
        rules.check_change(change)
        self._tables.refuse_in_safe_mode(op)
        return self._announce(self._tables.once(op, lambda: self._tables.apply(change)))

    async def register_node(self, op: str, registration: NodeRegistration) -> Result:
        """Register an agent."""
        register = self._tables.register_node
        return self._announce(self._tables.once(op, lambda: register(registration)))

    async def forget_node(self, op: str, forgetting: NodeForgetting) -> Result:
        """Remove a lost node."""
        self._tables.refuse_in_safe_mode(op)
        forget = self._tables.forget_node
        return self._announce(self._tables.once(op, lambda: forget(forgetting)))

    async def due(self, limit: int = 64) -> tuple[DueTimer, ...]:
        """Hand out due timers."""
        now, timers = self._clock.now_ms(), self._tables.timers
        late = sorted((at_ms, timer) for timer, at_ms in timers.items() if at_ms <= now)[:limit]
        for _, timer in late:
            timers[timer] = now + rules.TIMER_REPEAT_MS
        return tuple(DueTimer(id=timer) for _, timer in late)

    async def acquire_lease(
        self, name: str, holder: str, ttl_s: float, *, renew: bool = False
    ) -> bool:
        """Take or renew a lease."""
        leases = self._tables.leases
        present = leases.get(name)
        if present != holder and (present or renew):
            return False
        leases.put(name, holder, ttl_s)
        return True

    async def release_lease(self, name: str, holder: str) -> None:
        """Give a lease up."""
        if self._tables.leases.get(name) == holder:
            self._tables.leases.drop(name)

    # -- jobs and nodes -----------------------------------------------------------------------

    async def job(self, job: JobId) -> JobRecord | None:
        """Read one record."""
        record = self._tables.records.get(f"job:{job}")
        return None if record is None else from_json(JobRecord, record)

    async def spec(self, job: JobId) -> Json | None:
        """Read a specification."""
        spec: Json | None = copy(self._tables.documents.get(("spec", job)))
        return spec

    async def plans(self, job: JobId) -> PlanSet | None:
        """Read plans."""
        plans = self._tables.documents.get(("plans", job))
        return None if plans is None else from_json(PlanSet, plans)

    async def pending(self, job: JobId) -> Json | None:
        """Read why a job waits."""
        pending: Json | None = copy(self._tables.documents.get(("pending", job)))
        return pending

    async def timeline(self, job: JobId) -> tuple[Json, ...]:
        """Read transitions, oldest first."""
        return tuple(copy(self._tables.timelines.get(job, [])))

    async def list_jobs(
        self,
        *,
        project: ProjectName | None,
        states: frozenset[JobState],
        page_size: int,
        page_token: str,
        labels: Mapping[str, str],
    ) -> JobPage:
        """List jobs, newest first."""
        limit, before = page_limit(page_size), page_start(page_token)
        found = [
            record
            for record in reversed(self._tables.jobs())
            if (before is None or record["sequence"] < before)
            and (project is None or record["project"] == project)
            and (not states or record["state"] in states)
            and carries(record, labels)
        ]
        page = tuple(from_json(JobRecord, record) for record in found[:limit])
        return JobPage(
            jobs=page, next_token=token_before(page[-1].sequence) if len(found) > limit else ""
        )

    async def jobs_in(self, states: frozenset[JobState]) -> tuple[JobRecord, ...]:
        """Read all jobs in non-terminal states, by arrival."""
        rules.check_live(states)
        jobs = self._tables.jobs()
        return tuple(from_json(JobRecord, job) for job in jobs if job["state"] in states)

    async def node(self, node: NodeId) -> NodeRecord | None:
        """Read one node."""
        record = self._tables.records.get(f"node:{node}")
        return None if record is None else from_json(NodeRecord, record)

    async def cluster(self) -> ClusterSnapshot:
        """Read all nodes and owners."""
        return ClusterSnapshot(
            nodes=tuple(from_json(NodeRecord, record) for record in self._tables.nodes()),
            owners=dict(sorted(self._tables.owners.items())),
        )

    async def append_series(self, job: JobId, points: Sequence[Json], keep: int = 2000) -> None:
        """Append training metrics."""
        series = self._tables.series.setdefault(job, [])
        series.extend(copy(points))
        del series[:-keep]

    async def series(self, job: JobId) -> tuple[Json, ...]:
        """Read the kept training metrics."""
        return tuple(copy(self._tables.series.get(job, [])))

    async def note_run(
        self, group: str, run: str, outcome: Json, *, keep: int, groups: int
    ) -> bool:
        """Remember how an attempt went."""
        runs = self._runs.get(group, {})
        if run in runs:
            return False
        self._runs.pop(group, None)  # to the end: dicts keep insertion order
        self._runs[group] = dict([*runs.items(), (run, copy(outcome))][-keep:])
        self._revision += 1
        self._revisions[group] = self._revision
        for dropped in list(self._runs)[:-groups]:
            del self._runs[dropped], self._revisions[dropped]
        return True

    async def run_groups(self, after: int) -> tuple[RunGroup, ...]:
        """Read the groups that changed after a revision."""
        return tuple(
            RunGroup(
                name=name, revision=self._revisions[name], runs=tuple(copy(list(runs.values())))
            )
            for name, runs in self._runs.items()
            if self._revisions[name] > after
        )

    # -- outbox -------------------------------------------------------------------------------

    async def read_outbox(self, after: str, limit: int) -> tuple[OutboxEntry, ...]:
        """Read entries after a cursor."""
        start = after or self._cursor
        return tuple(entry for entry in self._tables.outbox if entry.cursor > start)[:limit]

    async def wait_outbox(self, after: str, timeout_s: float) -> bool:
        """Wait for an entry after a cursor."""
        posted = self._posted
        if await self.read_outbox(after, 1):
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await posted.wait()
        except TimeoutError:
            return False
        return True

    async def advance_outbox(self, cursor: str) -> None:
        """Remember what is published; drop published entries of more than a day ago."""
        self._cursor = max(self._cursor, cursor)
        oldest = self._clock.now_ms() - rules.OUTBOX_KEEP_MS
        self._tables.outbox = [
            entry
            for entry in self._tables.outbox
            if entry.cursor > self._cursor or entry.time_ms >= oldest
        ]

    # -- projects, health ---------------------------------------------------------------------

    async def projects(self) -> tuple[Project, ...]:
        """Read all projects."""
        projects = self._tables.projects
        return tuple(projects[name] for name in sorted(projects))

    async def put_usage(self, usage: Json) -> None:
        """Store what projects have had."""
        self._usage = copy(usage)

    async def usage(self) -> Json | None:
        """Read what projects have had."""
        usage: Json | None = copy(self._usage)
        return usage

    async def counts(self) -> Mapping[str, int]:
        """Return jobs per state."""
        states = [record["state"] for record in self._tables.jobs()]
        return {state.value: states.count(state) for state in JobState}

    async def health(self) -> StoreHealth:
        """Tell how far the relay is behind."""
        lag = sum(entry.cursor > self._cursor for entry in self._tables.outbox)
        return StoreHealth(
            reachable=True,
            detail="",
            outbox_lag=lag,
            memory_used_ratio=0.0,
            safe_mode=self._tables.safe_mode,
        )

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def _announce(self, result: Result) -> Result:
        if result.ok:
            self._wake()
        return result

    def _wake(self) -> None:
        posted, self._posted = self._posted, asyncio.Event()
        posted.set()
