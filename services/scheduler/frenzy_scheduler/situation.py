"""What a cycle is given, read from the store: the queue, the jobs that hold devices, the cluster.

Under a preemptive strategy a job that is giving its devices back counts as waiting, and they as
idle. So a decision stands from the cycle that made it until the devices are free: later cycles
see the same situation, and nobody else gets what a job was stopped for. A job whose next attempt
gets ready elsewhere counts as running there already.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from frenzy_scheduler.batches import batches
from frenzy_scheduler.continuing import continuable, may_be_stopped
from frenzy_scheduler.core.admission import Ledger
from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import (
    Allocator,
    Decision,
    Place,
    Preempt,
    Progress,
    QueuedJob,
    Resize,
    RunningJob,
    Strategy,
)
from frenzy_scheduler.core.dependencies import Found, blocked
from frenzy_scheduler.core.prices import Prices
from frenzy_scheduler.core.question import Question
from frenzy_scheduler.core.snapshot import Snapshot
from frenzy_scheduler.core.stops import awaited, given_back
from frenzy_scheduler.core.succession import as_successor, succeeding
from frenzy_scheduler.dependents import depended_on
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.paces import Paces
from frenzy_scheduler.pauses import Pauses
from frenzy_scheduler.sharing import Sharing, Terms, holdings
from frenzy_shared.clock import Clock
from frenzy_shared.domain.cluster import (
    ClusterSnapshot,
    NodeRecord,
    kinds_digest,
    owner_token,
    summarize_kinds,
)
from frenzy_shared.domain.eligibility import eligible_nodes
from frenzy_shared.domain.ids import JobId, NodeId, ProjectName
from frenzy_shared.domain.job import PLACED, JobRecord, JobState, StopReason
from frenzy_shared.domain.placement import Unplaceable
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.errors import InvalidSpec, NotFound
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_QUEUED: Final = frozenset({JobState.QUEUED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One look at everything; ``records`` are the jobs that it was made from.

    ``returning`` maps "<node>/<device>" to the job that still has to give it back.
    """

    records: Mapping[JobId, JobRecord]
    queue: Sequence[QueuedJob]
    running: Sequence[RunningJob]
    snapshot: Snapshot
    returning: Mapping[str, JobId]
    ledger: Ledger
    dependencies: Found
    cluster: ClusterSnapshot  # that ``snapshot`` indexes
    terms: Terms
    held: Sequence[JobRecord]  # the jobs whose devices ``ledger`` has booked

    def decide(self, policy: Strategy, now_ms: int) -> list[Decision]:
        """Run one cycle; nothing is acted on."""
        return cycle(self.queue, self.snapshot, now_ms, policy, self.running, ledger=self.ledger)

    def question(self, policy: Strategy, now_ms: int) -> Question:
        """Return what ``decide`` asks the cycle, as a value to edit and to keep."""
        return Question(
            queue=self.queue,
            running=self.running,
            cluster=self.cluster,
            now_ms=now_ms,
            policy=policy,
            projects=self.terms.projects,
            holdings=tuple(holdings(self.held)),
        )

    def can_move(self, move: Resize, decisions: Sequence[Decision]) -> bool:
        """Tell whether a job's next attempt can get ready while it trains on other devices.

        Not while others are to have what it holds: they would wait for as long as that takes.
        """
        job, owners = self.jobs[move.job], self.cluster.owners
        if job.progress.move_s is None or not isinstance(job, RunningJob):
            return False
        own = {ref.key for ref in job.placement.devices}
        there = {ref.key for ref in move.placement.devices}
        idle = all(not owners.get(key) and key not in self.returning for key in there)
        wanted = (
            ref.key
            for start in decisions
            if isinstance(start, Place | Resize)
            for ref in start.placement.devices
        )
        return idle and own.isdisjoint(wanted)

    def awaiting(self, decisions: Sequence[Decision]) -> dict[JobId, Unplaceable]:
        """Return the waiting jobs whose devices others still have to give back, and why."""
        stops = [decision for decision in decisions if isinstance(decision, Preempt | Resize)]
        held = {**self.returning, **given_back(stops, self.jobs)}
        places = (
            decision
            for decision in decisions
            if isinstance(decision, Place) and self.records[decision.job].state is JobState.QUEUED
        )
        found = ((place.job, awaited(place.placement, held)) for place in places)
        return {job: why for job, why in found if why is not None}

    @property
    def waiting(self) -> list[JobRecord]:
        """Return the records of the jobs that hold nothing."""
        return [record for record in self.records.values() if record.state is JobState.QUEUED]

    @property
    def jobs(self) -> dict[JobId, QueuedJob | RunningJob]:
        """Return the jobs as the cycle sees them, by id."""
        found: dict[JobId, QueuedJob | RunningJob] = {job.id: job for job in self.queue}
        return found | {job.id: job for job in self.running}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Reads situations. ``restart_prior_s`` is the price of a restart until one was measured.

    A job whose next attempt had to be given up stays where it is for ``move_backoff_s``.
    """

    store: StateStore
    clock: Clock
    documents: Documents
    policy: Strategy
    sharing: Sharing
    paces: Paces
    pauses: Pauses
    restart_prior_s: float
    make_before_break: bool
    move_backoff_s: float
    stop_grace_s: float
    batch: int

    async def at_everything(self, *, ahead: bool = False) -> Situation:
        """Return the situation now.

        Placed jobs are read only to look ``ahead``, for strategies that do, and where quotas are.
        """
        terms = await self.sharing.terms()
        looks_ahead = ahead or isinstance(self.policy, Allocator)
        found = await self.store.jobs_in(PLACED) if looks_ahead or terms.limited else ()
        # In this order: a job that is queued again between the two is seen twice, never missed.
        waiting = await self.store.jobs_in(_QUEUED)
        self.documents.make_room(len(found) + len(waiting))
        again = {record.id for record in waiting}
        self.pauses.keep(again)
        placed = [record for record in found if record.id not in again]
        going = [record for record in placed if self._stops and _gives_back(record)]
        moving = {record.id for record in going if succeeding(record) is not None}
        leaving = [record for record in going if record.id not in moving]
        gone = {record.id for record in leaving}
        held = [
            as_successor(record) if record.id in moving else record
            for record in placed
            if record.id not in gone
        ]
        cluster, returning = _as_if_given_back(await self.store.cluster(), going)
        around = _Surroundings(
            nodes=cluster.nodes,
            digest=kinds_digest(summarize_kinds(cluster.nodes)),
            prices=Prices.of(placed, self.restart_prior_s),
            standings=self.sharing.standings(terms, (*waiting, *placed), cluster),
            dependencies=await depended_on(self.store, waiting),
        )
        queue: list[QueuedJob] = []
        running: list[RunningJob | None] = []
        for some in batches([*waiting, *leaving], self.batch):
            queue += await asyncio.gather(*(self._queued(one, around) for one in some))
        for some in batches(held if looks_ahead else (), self.batch):
            running += await asyncio.gather(*(self._running(one, around) for one in some))
        return Situation(
            records={record.id: record for record in (*waiting, *placed)},
            queue=queue,
            running=[job for job in running if job is not None],
            snapshot=Snapshot.of(cluster),
            returning=returning,
            ledger=terms.ledger(held),
            dependencies=around.dependencies,
            cluster=cluster,
            terms=terms,
            held=held,
        )

    @property
    def _stops(self) -> bool:
        return isinstance(self.policy, Allocator) and self.policy.preemptive

    async def _queued(self, record: JobRecord, around: "_Surroundings") -> QueuedJob:
        found = await self.documents.plans(record, around.digest)
        plans, refused = found.plans, found.refused
        spec = await self._spec(record)
        if spec is not None:
            plans, lost = continuable(plans, record, spec)
            refused = lost if lost and not plans else refused
        return QueuedJob(
            id=record.id,
            sequence=record.sequence,
            version=record.version,
            plans=plans,
            refused=refused,
            not_before_ms=self.pauses.not_before_ms(record),
            message=record.message or found.message,
            progress=_progress(record, spec, around.prices),
            project=record.project,
            priority=record.priority,
            standing=around.standings[record.project],
            blocked=blocked(record, around.dependencies),
            nodes=around.nodes_for(spec),
        )

    async def _running(self, record: JobRecord, around: "_Surroundings") -> RunningJob | None:
        if record.placement is None:
            return None
        try:
            own = await self.documents.plan(record)
        except NotFound as error:
            log.info("job %s has no known end: %s", record.id, error.message)
            return None
        spec = await self._spec(record)
        others = await self._other_plans(record, spec)
        if others and self._resting(record):
            others = (own,)
        placed_ms = record.placed_ms or record.updated_ms
        held_s = len(record.placement.devices) * (self.clock.now_ms() - placed_ms) / 1000
        progress = _progress(record, spec, around.prices, own)
        ending = record.state is JobState.STOPPING and succeeding(record) is None
        return RunningJob(
            id=record.id,
            sequence=record.sequence,
            plans=(own,) if others is None else others,
            placement=record.placement,
            version=record.version,
            placed_ms=placed_ms,
            preemptible=others is not None,
            progress=replace(
                progress,
                steps_left=0.0 if ending else progress.steps_left,
                attained_device_s=progress.attained_device_s + max(held_s, 0.0),
                step_s=self.paces.step_s(record.id, record.attempt),
                move_s=self._move_s(record, spec, around.prices),
            ),
            project=record.project,
            priority=record.priority,
            standing=around.standings[record.project],
            nodes=around.nodes_for(spec),
        )

    async def _other_plans(
        self, record: JobRecord, spec: JobSpec | None
    ) -> tuple[ResourcePlan, ...] | None:
        """Return all plans that a running job may change to, its own too; None: leave it alone."""
        if not self._stops or spec is None or not _trains(record, spec):
            return None
        if succeeding(record) is not None or not may_be_stopped(record, spec, self.stop_grace_s):
            return None
        found = (await self.documents.placed_plans(record)).plans
        return continuable(found, record, spec)[0]

    def _resting(self, record: JobRecord) -> bool:
        """Tell whether the job's next attempt was given up so lately that it stays where it is."""
        given_up = record.successor is not None and record.successor.dropped
        if not given_up or record.successor is None:
            return False
        return self.clock.now_ms() - record.successor.dropped_ms < self.move_backoff_s * 1000

    def _move_s(self, record: JobRecord, spec: JobSpec | None, prices: Prices) -> float | None:
        """Return the price of a move beside training; None where the job must be stopped first.

        Only the built-in trainer can wait before its first step; secrets are given to the
        attempt that runs, so a job with secrets has none that waits.
        """
        if not self.make_before_break or spec is None or spec.entrypoint is not None:
            return None
        if spec.secrets or not spec.checkpoint.resume or succeeding(record) is not None:
            return None
        gone = record.successor is None or record.successor.gone
        return prices.moving_s(record) if gone else None

    async def _spec(self, record: JobRecord) -> JobSpec | None:
        try:
            return await self.documents.spec(record.id)
        except (NotFound, InvalidSpec) as error:
            log.warning("job %s is not touched: %s", record.id, error.message)
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surroundings:
    """What one job's part in a situation is made from besides its own records."""

    nodes: Sequence[NodeRecord]
    digest: str  # of the cluster's kinds
    prices: Prices
    standings: Mapping[ProjectName, float]
    dependencies: Found

    def nodes_for(self, spec: JobSpec | None) -> frozenset[NodeId] | None:
        return None if spec is None else eligible_nodes(spec.resources.node_pins, self.nodes)


def _progress(
    record: JobRecord, spec: JobSpec | None, prices: Prices, plan: ResourcePlan | None = None
) -> Progress:
    """Return what is known of a job; ``plan`` is what it runs with."""
    saved = record.checkpoint_step or 0
    trained = max(record.last_step or 0, saved)
    total = spec.max_steps if spec is not None else None
    restart_s = prices.restart_s(record)
    if plan is not None and spec is not None and spec.entrypoint is not None:
        restart_s += (trained - saved) * plan.speed.step_s  # a script need not save when stopped
    return Progress(
        steps_left=None if total is None else float(max(total - trained, 0)),
        attained_device_s=record.attained_device_ms / 1000,
        arrived_ms=record.created_ms,
        restart_s=restart_s,
    )


def _trains(record: JobRecord, spec: JobSpec) -> bool:
    """Tell whether an attempt got so far that stopping it loses no launch: it cannot livelock."""
    begun = record.last_step is not None or spec.entrypoint is not None
    return record.state is JobState.RUNNING and not record.exited and begun


def _gives_back(record: JobRecord) -> bool:
    """Tell whether a job leaves its devices for others, at once or when its successor is ready."""
    if record.state is JobState.RUNNING:
        return succeeding(record) is not None
    return record.state is JobState.STOPPING and record.reason == StopReason.PREEMPTED


def _as_if_given_back(
    cluster: ClusterSnapshot, leaving: Sequence[JobRecord]
) -> tuple[ClusterSnapshot, dict[str, JobId]]:
    owners = {owner_token(record.id, record.attempt): record.id for record in leaving}
    returning = {key: owners[own] for key, own in cluster.owners.items() if own in owners}
    if not returning:
        return cluster, {}
    return replace(cluster, owners={**cluster.owners, **dict.fromkeys(returning, "")}), returning
