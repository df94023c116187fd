"""Note once in the store how attempts went; read what other replicas noted, and learn from it."""

import logging
from dataclasses import dataclass, field
from typing import Final

from frenzy_marp.core.candidates import gpu_model
from frenzy_marp.core.correction import plan_that_ran
from frenzy_marp.core.learning import Drift, Experience
from frenzy_marp.core.learning_runs import (
    Framework,
    Run,
    conditions,
    is_over,
    run_of,
    shape_of,
)
from frenzy_marp.core.memory.estimate import DeviceTraits, room_ratio, uncorrected
from frenzy_marp.metrics import Metrics
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.job import JobRecord
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.codec import from_json, to_json
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

KEEP: Final = 32  # runs of a group
GROUPS: Final = 256


def framework_of(spec: JobSpec) -> Framework:
    """Return what trains a job."""
    return Framework.TRAINER if spec.entrypoint is None else Framework.SCRIPT


@dataclass(kw_only=True)
class Learner:
    """One replica's experience, and its part in the store's."""

    state: StateStore
    metrics: Metrics
    experience: Experience = field(default_factory=Experience)
    _groups: dict[str, tuple[Run, ...]] = field(default_factory=dict[str, tuple[Run, ...]])
    _revision: int = 0
    _drifting: frozenset[str] = frozenset()

    async def note(
        self, record: JobRecord, plans: PlanSet | None, kinds: tuple[KindSummary, ...]
    ) -> None:
        """Note the record's attempt if it is over and was not noted before; learn from it at once.

        Raises:
            Unavailable: the store is down.
        """
        run = await self._run(record, plans, kinds)
        if run is None or run.memory_error is run.speed_error is None:
            return
        group = run.conditions.group
        if await self.state.note_run(group, run.id, to_json(run), keep=KEEP, groups=GROUPS):
            self.metrics.learned(run)
            log.info("attempt %s noted: %s", run.id, group, extra={"job": record.id})
        await self.refresh()  # even if another replica was faster: plans may be made next

    async def refresh(self) -> None:
        """Read what was noted since the last look, by whichever replica.

        Raises:
            Unavailable: the store is down.
        """
        changed = await self.state.run_groups(self._revision)
        if not changed:
            return
        for group in changed:
            self._groups.pop(group.name, None)  # to the end: the newest groups stay
            self._groups[group.name] = tuple(from_json(Run, run) for run in group.runs)
            self._revision = group.revision
        for name in list(self._groups)[:-GROUPS]:
            del self._groups[name]
        runs = (run for group in self._groups.values() for run in group)
        self.experience = Experience(sorted(runs, key=lambda run: run.time_ms))
        self._watch(self.experience.drifts())

    async def _run(
        self, record: JobRecord, plans: PlanSet | None, kinds: tuple[KindSummary, ...]
    ) -> Run | None:
        if plans is None or not is_over(record):
            return None
        plan = plan_that_ran(record, plans)
        kind = next((kind for kind in kinds if plan is not None and kind.kind == plan.kind), None)
        spec = await self.state.spec(record.id)
        if plan is None or kind is None or spec is None:
            return None
        read = JobSpec.model_validate(spec)
        setup = training_setup(read)
        traits = DeviceTraits(
            emulated=kind.emulated or gpu_model(kind).emulated,
            compute_capability=kind.compute_capability,
            ranks=plan.parallelism.world_size,
        )
        predicted = uncorrected(plan.memory)
        return run_of(
            record,
            plan,
            setup,
            conditions(
                setup,
                plan.parallelism,
                framework=framework_of(read),
                kind=plan.kind,
                emulated=traits.emulated,
                shape=shape_of(setup),
            ),
            room=room_ratio(predicted, kind.memory_bytes, traits),
            predicted_bytes=predicted,
        )

    def _watch(self, drifts: tuple[Drift, ...]) -> None:
        """Say once when predictions begin to leave their bands, and once when they are back."""
        self.metrics.drifting(len(drifts))
        for drift in drifts:
            if drift.group not in self._drifting:
                log.warning(
                    "memory predictions drift: %d of the last %d runs of %s were outside their "
                    "band, observed / predicted is %.2f",
                    drift.outside,
                    drift.runs,
                    drift.group,
                    drift.ratio,
                )
        present = frozenset(drift.group for drift in drifts)
        for group in sorted(self._drifting - present):
            log.info("memory predictions of %s are within their band again", group)
        self._drifting = present
