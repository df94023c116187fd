"""The jobs of a simulation, from whatever the user has: a trace, specifications, or a profile."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_shared.domain.cluster import KindSummary
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.generator import generate
from frenzy_simulator.jobs import SimJob
from frenzy_simulator.presets import to_sim_jobs
from frenzy_simulator.specs import load_specs
from frenzy_simulator.throughput import Marp
from frenzy_simulator.traces import load_trace

DEFAULT_JOBS: Final = 160  # of a generated workload
_SPEC_SUFFIXES: Final = (".jsonl", ".ndjson")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where jobs come from: ``trace`` when there is one, else the ``profile``.

    ``jobs`` stops after so many. ``reference_kind`` is what a trace's durations were measured on;
    "" takes the kind of which the cluster has most.
    """

    trace: Path | None = None
    profile: str = "philly"
    jobs: int | None = None
    per_hour: float | None = None
    seed: int = 0
    reference_kind: str = ""
    cap_gpus: bool = False
    sort: bool = False

    def read(self, kinds: tuple[KindSummary, ...]) -> list[SimJob]:
        """Return the jobs, in order of arrival.

        Raises:
            InvalidTrace: the file is wrong; the message names the line.
            InvalidScenario: an unknown profile or kind, or an impossible number.
        """
        if self.jobs is not None and self.jobs < 1:
            raise InvalidScenario(f"jobs is {self.jobs}; it must be at least 1")
        if self.trace is not None and self.trace.suffix in _SPEC_SUFFIXES:
            return load_specs(self.trace, limit=self.jobs)
        largest = sum(kind.total for kind in kinds)
        if self.trace is not None:
            found = load_trace(
                self.trace, limit=self.jobs, largest=largest, cap=self.cap_gpus, resort=self.sort
            )
        else:
            found = generate(
                self.profile,
                DEFAULT_JOBS if self.jobs is None else self.jobs,
                per_hour=self.per_hour,
                largest=largest,
                seed=self.seed,
            )
        return to_sim_jobs(found, Marp(kinds), self._reference(kinds), self.seed)

    def _reference(self, kinds: tuple[KindSummary, ...]) -> str:
        names = [kind.kind for kind in kinds]
        if self.reference_kind and self.reference_kind not in names:
            raise InvalidScenario(
                f"the cluster has no {self.reference_kind[:80]!r} to refer to",
                suggestions=[f"its kinds: {', '.join(names)}"],
            )
        return self.reference_kind or max(kinds, key=lambda kind: (kind.total, kind.kind)).kind
