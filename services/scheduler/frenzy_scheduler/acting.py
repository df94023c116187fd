"""Carry out what a cycle decided: stop running jobs, claim devices for waiting ones."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from opentelemetry.trace import Span

from frenzy_scheduler.batches import batches
from frenzy_scheduler.changes import job_change
from frenzy_scheduler.core.decisions import (
    Decision,
    Place,
    Preempt,
    QueuedJob,
    Resize,
    RunningJob,
)
from frenzy_scheduler.core.facts import Displaced
from frenzy_scheduler.core.lifecycle import reserve
from frenzy_scheduler.core.stops import displaced, moved
from frenzy_scheduler.core.succession import open_successor
from frenzy_scheduler.desired import Desired
from frenzy_scheduler.documents import Documents
from frenzy_scheduler.jobs import Jobs, apply, lease_lost
from frenzy_scheduler.leadership import Leadership
from frenzy_scheduler.metrics import Metrics
from frenzy_scheduler.situation import Situation
from frenzy_scheduler.tracing import span_context
from frenzy_shared import crashpoints
from frenzy_shared.clock import Clock, IdSource
from frenzy_shared.domain.continuation import shape_of
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.domain.placement import Unplaceable
from frenzy_shared.state.port import Result, StateStore, Status
from frenzy_shared.telemetry import Telemetry

log = logging.getLogger(__name__)

_CONFLICTS: Final = frozenset({Status.TAKEN, Status.NODE_EPOCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """What became of a cycle's decisions.

    ``conflict``: the cluster was not as the cycle saw it. ``awaiting``: jobs whose devices other
    jobs still have to give back, and what to say about it.
    """

    conflict: bool
    awaiting: Mapping[JobId, Unplaceable]


@dataclass(kw_only=True)
class Acting:
    """Writes decisions into the store, each only if its job and the devices are as it saw them."""

    store: StateStore
    clock: Clock
    ids: IdSource
    documents: Documents
    jobs: Jobs
    desired: Desired
    leadership: Leadership
    metrics: Metrics
    telemetry: Telemetry
    batch: int

    async def carry_out(
        self, decisions: Sequence[Decision], situation: Situation, span: Span
    ) -> Acted:
        """Stop whom the cycle stops, and claim what is free; ``span`` is the cycle's.

        What is still held is claimed by a later cycle, which decides the same: see ``situation``.
        """
        jobs, awaiting = situation.jobs, situation.awaiting(decisions)
        stops = [decision for decision in decisions if isinstance(decision, Preempt | Resize)]
        places = [
            decision
            for decision in decisions
            if isinstance(decision, Place)
            and decision.job not in awaiting
            and situation.records[decision.job].state is JobState.QUEUED
        ]
        conflict = False
        for stop in stops:
            record = situation.records[stop.job]
            if isinstance(stop, Resize) and situation.can_move(stop, decisions):
                conflict |= await self._warm_up(record, stop, jobs)
            else:
                await self._displace(record, displaced(stop, decisions, jobs))
        for some in batches(places, self.batch):
            claims = (
                self._claim(situation.records[place.job], place, jobs[place.job], span)
                for place in some
            )
            conflict |= any(await asyncio.gather(*claims))
        span.set_attributes({"placed": len(places), "stopped": len(stops), "conflict": conflict})
        return Acted(conflict=conflict, awaiting=awaiting)

    async def _displace(self, record: JobRecord, fact: Displaced) -> None:
        """Tell a running job to save and go, if it still is the attempt that the cycle saw."""
        op = f"displace:{record.id}:{record.attempt}"
        crashpoints.reach("scheduler.before-displace")
        await self.jobs.learn(record.id, record.attempt, fact, op=op, lease=self.leadership.proof)
        crashpoints.reach("scheduler.after-displace")

    async def _warm_up(
        self, record: JobRecord, move: Resize, jobs: Mapping[JobId, QueuedJob | RunningJob]
    ) -> bool:
        """Claim devices for the job's next attempt; return whether they were not as seen."""
        plan = next(plan for plan in jobs[move.job].plans if plan.id == move.placement.plan)
        step = open_successor(
            record,
            move.placement,
            moved(move, jobs),
            await self.documents.rules(record),
            shape=shape_of(plan.parallelism),
            now_ms=self.clock.now_ms(),
        )
        op = f"warm:{record.id}:{record.version}:{self.ids.new_id()}"
        crashpoints.reach("scheduler.before-warm")
        result = await apply(
            self.store, op, job_change(step, lease=self.leadership.proof, plan=plan)
        )
        crashpoints.reach("scheduler.after-warm")
        if result.ok:
            log.info("job %s: %s", record.id, step.after.message, extra={"job": record.id})
            await self.desired.push(replace(step.after, version=result.version))
            return False
        return self._refused(record, result)

    async def _claim(
        self, record: JobRecord, place: Place, job: QueuedJob | RunningJob, cycle_span: Span
    ) -> bool:
        """Claim one gang whole; return whether the cluster was not as the snapshot said."""
        plan = next(plan for plan in job.plans if plan.id == place.placement.plan)
        op = f"sched:{record.id}:{record.version}:{self.ids.new_id()}"
        with self.telemetry.span("scheduler.place", parent=record.traceparent, job=record.id):
            if (context := span_context(record.traceparent)) is not None:
                cycle_span.add_link(context)
            step = reserve(
                record,
                place.placement,
                await self.documents.rules(record),
                shape=shape_of(plan.parallelism),
                now_ms=self.clock.now_ms(),
            )
            change = job_change(
                step, lease=self.leadership.proof, documents={"pending": None}, plan=plan
            )
            crashpoints.reach("scheduler.before-claim")
            result = await apply(self.store, op, change)
            crashpoints.reach("scheduler.after-claim")
            if result.ok:
                placed = replace(step.after, version=result.version)
                self.metrics.placed(placed, self.clock.now_ms())
                self.metrics.moved(placed)
                log.info(
                    "job %s is placed: %s", record.id, placed.message, extra={"job": record.id}
                )
                await self.desired.push(placed)
                return False
        return self._refused(record, result)

    def _refused(self, record: JobRecord, result: Result) -> bool:
        """Note a claim that the store refused; return whether the cluster was not as seen."""
        self.metrics.conflicted(result.status)
        log.info("claim for job %s refused: %s %s", record.id, result.status, result.detail)
        if lease_lost(result):
            self.leadership.lose()
        return result.status in _CONFLICTS
