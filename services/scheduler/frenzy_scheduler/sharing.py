"""How projects share the cluster, read from the store, and what they have had, written to it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frenzy_scheduler.core.admission import Holding, Ledger
from frenzy_scheduler.core.shares import Usage, account, standings
from frenzy_shared.clock import Clock
from frenzy_shared.domain.cluster import ClusterSnapshot, summarize_kinds
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.job import PLACED, JobRecord
from frenzy_shared.domain.project import Project
from frenzy_shared.messages.codec import from_json, to_json
from frenzy_shared.state.port import StateStore


@dataclass(frozen=True, slots=True)
class Terms:
    """What was decided for projects and what they have had, at one moment."""

    projects: tuple[Project, ...]
    usage: Usage

    @property
    def limited(self) -> bool:
        """Tell whether what jobs hold now matters for who may get more."""
        return bool(self.projects)

    def ledger(self, held: Iterable[JobRecord]) -> Ledger:
        """Return the quotas, with what these jobs hold booked."""
        return Ledger(self.projects, holdings(held))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Reads the terms, and keeps the account. ``half_life_s`` 0: no fair share."""

    store: StateStore
    clock: Clock
    half_life_s: float

    async def terms(self) -> Terms:
        """Return what holds now."""
        projects, usage = await asyncio.gather(self.store.projects(), self._usage())
        return Terms(projects, usage)

    async def keep_account(self) -> None:
        """Add what jobs hold to what their projects have had, since the last time anybody did."""
        if not self.half_life_s:
            return
        held = await self.store.jobs_in(PLACED)
        usage = account(await self._usage(), holdings(held), self.clock.now_ms(), self.half_life_s)
        await self.store.put_usage(to_json(usage))

    def standings(
        self, terms: Terms, present: Sequence[JobRecord], cluster: ClusterSnapshot
    ) -> dict[ProjectName, float]:
        """Return how the projects of these jobs stand in the fair share."""
        names = {record.project for record in present}
        if not self.half_life_s or len(names | set(terms.usage.device_s)) < 2:
            return dict.fromkeys(names, 1.0)
        weights = {project.name: project.weight for project in terms.projects}
        capacity = {kind.kind: kind.total for kind in summarize_kinds(cluster.nodes)}
        return standings(terms.usage, names, weights, capacity, self.half_life_s)

    async def _usage(self) -> Usage:
        stored = await self.store.usage()
        return Usage(at_ms=self.clock.now_ms()) if stored is None else from_json(Usage, stored)


def holdings(records: Iterable[JobRecord]) -> list[Holding]:
    """Return what placed jobs hold."""
    return [
        Holding(record.project, record.placement.kind, len(record.placement.devices))
        for record in records
        if record.placement is not None
    ]
