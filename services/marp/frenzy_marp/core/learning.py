"""What finished attempts teach about plans that have not run yet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Final, TypeVar

from frenzy_marp.core.learning_errors import (
    MAX_FACTOR,
    NOTHING_LEARNED,
    STRUCTURE_ASSUMED,
    Correction,
    LogError,
    correction,
    reserved_ratio,
)
from frenzy_marp.core.learning_prior import unlearned
from frenzy_marp.core.learning_runs import (
    Conditions,
    Ending,
    Framework,
    Run,
    conditions,
    shape_of,
)
from frenzy_shared.domain.model import TrainingSetup
from frenzy_shared.domain.plan import ParallelismPlan, PlanSet

RECENT: Final = 20  # runs that drift is judged by

_FEWEST: Final = 8  # of them; fewer prove nothing
_TOLERATED: Final = 0.25  # share of recent runs that may lie outside their band

_Level = tuple[str, ...]
_T = TypeVar("_T", LogError, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Predictions of one method on one kind that have lately left their bands."""

    group: str
    runs: int
    outside: int
    ratio: float  # median of observed over shown


class Experience:
    """All noted runs, indexed. A new one is made when a run is added: answers are remembered."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """Index ``runs``, which are in the order in which they ended.

        ``least_factor`` bounds every correction of memory from below.
        """
        self._runs = tuple(runs)
        self._memory = _indexed(self._runs, lambda run: run.memory_error)
        self._speed = _indexed(self._runs, lambda run: run.speed_error)
        self._reserved = _indexed(self._runs, lambda run: run.reserved_ratio)
        self.least_factor = _least_factor(self._memory)
        self._ran_out_ms = _newest_out_of_memory(self._runs)
        self._known: dict[tuple[str, ...], tuple[Correction, Correction]] = {}

    def __len__(self) -> int:
        """Return how many runs there are."""
        return len(self._runs)

    @property
    def learned_ms(self) -> int:
        """Return when the newest run out of memory ended, 0 when none did."""
        return max(self._ran_out_ms.values(), default=0)

    def outdates(self, plans: PlanSet) -> bool:
        """Tell whether a kind that ``plans`` use has run out of memory since they were made."""
        kinds = {plan.kind for plan in plans.plans}
        return any(self._ran_out_ms.get(kind, 0) > plans.learned_ms for kind in kinds)

    def about(self, conditions: Conditions) -> tuple[Correction, Correction]:
        """Return the corrections of predicted memory and of the predicted time of a step."""
        levels = conditions.levels
        # Below the finest level with runs nothing differs, and models that nobody ran are endless.
        deepest = next(
            (level for level in reversed(levels) if level in self._memory or level in self._speed),
            None,
        )
        believed = unlearned(emulated=conditions.emulated)
        if deepest is None:
            return believed, NOTHING_LEARNED
        found = self._known.get(deepest)
        if found is None:
            reserved = reserved_ratio([self._reserved.get(level, ()) for level in levels])
            memory = correction([self._memory.get(level, ()) for level in levels], believed)
            found = self._known[deepest] = (
                replace(memory, reserved_ratio=reserved),
                correction([self._speed.get(level, ()) for level in levels]),
            )
        return found

    def drifts(self) -> tuple[Drift, ...]:
        """Return where recent runs have left the bands that their plans showed."""
        recent: dict[tuple[str, ...], list[Run]] = {}
        for run in self._runs:
            if run.memory_error is not None and run.peak_bytes is not None:
                recent.setdefault(run.conditions.levels[0], []).append(run)
        judged = (_drift(runs[-RECENT:]) for runs in recent.values())
        return tuple(drift for drift in judged if drift is not None)


class Lessons:
    """An experience as one job sees it."""

    def __init__(self, experience: Experience, setup: TrainingSetup, framework: Framework) -> None:
        """Ask for runs of ``framework``: our trainer, or a script of the user's."""
        self.any = bool(experience)
        self.least_factor = experience.least_factor
        self._experience = experience
        self._setup = setup
        self._framework = framework
        self._shape = shape_of(setup) if experience else ""

    def about(
        self, plan: ParallelismPlan, kind: str, *, emulated: bool
    ) -> tuple[Correction, Correction]:
        """Return the corrections of a plan's memory and of its time."""
        memory, time = self._learned(plan, kind, emulated=emulated)
        if self._setup.model.structure.assumed and not memory.runs:
            memory = STRUCTURE_ASSUMED
        return memory, time

    def _learned(
        self, plan: ParallelismPlan, kind: str, *, emulated: bool
    ) -> tuple[Correction, Correction]:
        if not self._experience:
            return unlearned(emulated=emulated), NOTHING_LEARNED
        return self._experience.about(
            conditions(
                self._setup,
                plan,
                framework=self._framework,
                kind=kind,
                emulated=emulated,
                shape=self._shape,
            )
        )


def _indexed(runs: Sequence[Run], of: Callable[[Run], _T | None]) -> dict[_Level, list[_T]]:
    found: dict[_Level, list[_T]] = {}
    for run in runs:
        value = of(run)
        if value is not None:
            for level in run.conditions.levels:
                found.setdefault(level, []).append(value)
    return found


def _newest_out_of_memory(runs: Sequence[Run]) -> dict[str, int]:
    """Return the newest end of a run out of memory, by kind."""
    ended = [run for run in runs if run.ending is Ending.OUT_OF_MEMORY]
    return {run.conditions.kind: run.time_ms for run in sorted(ended, key=lambda run: run.time_ms)}


def _least_factor(memory: dict[_Level, list[LogError]]) -> float:
    least = min(
        (error.high for errors in memory.values() for error in errors if error.high < 0),
        default=0.0,
    )
    return max(1 / MAX_FACTOR, exp(least))


def _drift(runs: Sequence[Run]) -> Drift | None:
    peaks = [(run, run.peak_bytes or 0) for run in runs]
    outside = sum(not run.low_bytes <= peak <= run.high_bytes for run, peak in peaks)
    if len(runs) < _FEWEST or outside <= _TOLERATED * len(runs):
        return None
    ratios = sorted(peak / run.shown_bytes for run, peak in peaks)
    return Drift(
        group="/".join(runs[-1].conditions.levels[0]),
        runs=len(runs),
        outside=outside,
        ratio=ratios[len(ratios) // 2],
    )
