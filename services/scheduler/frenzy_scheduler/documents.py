"""What is read again and again and does not change: specifications, and plans of one version."""

import logging
from dataclasses import dataclass, field
from typing import Final, TypeVar

from frenzy_scheduler.core.steps import Rules
from frenzy_scheduler.settings import SchedulerSettings
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.domain.plan import PlanSet, ResourcePlan
from frenzy_shared.errors import InvalidSpec, NotFound
from frenzy_shared.messages.spec import JobSpec, Retry, parse_spec
from frenzy_shared.state.port import StateStore
from frenzy_shared.units import parse_duration_s

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_KEPT: Final = 4096  # entries of each kind at least; plans of one job take some 40 KB


@dataclass(kw_only=True)
class Documents:
    """Side documents of jobs, remembered in this process."""

    store: StateStore
    settings: SchedulerSettings
    _room: int = _KEPT
    _specs: dict[JobId, JobSpec] = field(default_factory=dict)
    _queued: dict[tuple[JobId, int], PlanSet] = field(default_factory=dict)
    _placed: dict[tuple[JobId, int], PlanSet] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop everything: the store's content was put right."""
        self._specs.clear()
        self._queued.clear()
        self._placed.clear()

    def make_room(self, jobs: int) -> None:
        """Keep what a look at so many jobs needs: with less room, each would read all anew."""
        self._room = max(_KEPT, jobs + jobs // 4)

    async def spec(self, job: JobId) -> JobSpec:
        """Return a job's specification, which never changes.

        Raises:
            NotFound: the store has none.
            InvalidSpec: a newer or broken writer stored it.
        """
        spec = self._specs.get(job)
        if spec is None:
            document = await self.store.spec(job)
            if document is None:
                raise NotFound(f"job {job} has no specification in the store")
            spec = parse_spec(dict(document))
        return self._remember(self._specs, job, spec)

    async def plans(self, record: JobRecord, digest: str) -> PlanSet:
        """Return the plans of a queued job.

        They change with its version, and MARP renews them in place when they were made for
        other kinds than the cluster's, whose digest is ``digest``: such plans are read again.
        """
        key = (record.id, record.version)
        plans = self._queued.get(key)
        if plans is None or plans.kinds_digest != digest:
            none = PlanSet(plans=(), refused=(), kinds_digest="", message=record.message)
            plans = await self.store.plans(record.id) or none
        return self._remember(self._queued, key, plans)

    async def plan(self, record: JobRecord) -> ResourcePlan:
        """Return the plan that the record's attempt runs with; fixed since it was placed.

        Raises:
            NotFound: the store's plans do not have it, because MARP renewed them in the moment
                between the decision and the claim. Nodes then refuse, and the job is tried again.
        """
        plans = (await self.placed_plans(record)).plans
        own = next((plan for plan in plans if _is_for(plan, record)), None)
        if own is None:
            raise NotFound(f"attempt {record.attempt} has no plan that fits its placement")
        return own

    async def placed_plans(self, record: JobRecord) -> PlanSet:
        """Return the plans that the record's attempt was placed with, all of them."""
        key = (record.id, record.attempt)
        plans = self._placed.get(key)
        if plans is None:
            plans = await self.store.plans(record.id)
            if plans is None or not any(_is_for(plan, record) for plan in plans.plans):
                return plans or PlanSet(plans=(), refused=(), kinds_digest="")
        return self._remember(self._placed, key, plans)

    async def rules(self, record: JobRecord) -> Rules:
        """Return the limits that apply to a job; the defaults when its specification is broken."""
        timing = self.settings
        retry, max_duration, reports = Retry(), None, True
        try:
            spec = await self.spec(record.id)
            retry, max_duration, reports = spec.retry, spec.max_duration, spec.entrypoint is None
        except (NotFound, InvalidSpec) as error:
            log.warning("job %s: %s; default limits apply", record.id, error.message)
        return Rules(
            prepare_timeout_s=timing.prepare_timeout_s,
            warm_timeout_s=timing.warm_timeout_s,
            go_timeout_s=timing.go_timeout_s,
            first_report_timeout_s=timing.first_report_timeout_s,
            stop_grace_s=timing.stop_grace_s,
            evidence_wait_s=timing.evidence_wait_s,
            backoff_base_s=timing.backoff_base_s,
            backoff_max_s=timing.backoff_max_s,
            replan_timeout_s=timing.replan_timeout_s,
            max_retries=retry.max_retries,
            max_oom_retries=retry.max_oom_retries,
            max_duration_s=parse_duration_s(max_duration) if max_duration else None,
            reports=reports,
        )

    def _remember(self, cache: dict[K, V], key: K, value: V) -> V:
        """Put ``value`` last; what was asked for longest ago goes first."""
        cache.pop(key, None)
        cache[key] = value
        while len(cache) > self._room:
            del cache[next(iter(cache))]
        return value


def _is_for(plan: ResourcePlan, record: JobRecord) -> bool:
    placement = record.placement
    if placement is None or plan.id != placement.plan:
        return False
    return plan.kind == placement.kind and plan.device_count == len(placement.devices)
