"""How fast the jobs that run now really train, from their own reports; forgotten when they end."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from frenzy_shared.domain.ids import JobId
from frenzy_shared.messages.v1 import TelemetryBatch

_KEPT: Final = 16  # steps of a job
_ENOUGH: Final = 3  # the first step of a run is slow, and one is none
_JOBS: Final = 4096


@dataclass(kw_only=True)
class Paces:
    """The last step times of each job's present attempt.

    Reports are shared out among replicas, so each knows a part of them: enough for a median.
    """

    _steps: dict[JobId, tuple[int, deque[float]]] = field(default_factory=dict)

    def note(self, batch: TelemetryBatch) -> None:
        """Remember what rank 0 reports."""
        job = JobId(batch.job)
        for point in batch.points:
            if point.rank == 0 and point.step_seconds is not None:
                attempt, steps = self._steps.pop(job, (0, deque[float](maxlen=_KEPT)))
                if attempt != point.attempt:
                    steps = deque(maxlen=_KEPT)
                steps.append(point.step_seconds)
                self._steps[job] = (point.attempt, steps)  # the one heard of last stands last
        while len(self._steps) > _JOBS:
            del self._steps[next(iter(self._steps))]

    def step_s(self, job: JobId, attempt: int) -> float | None:
        """Return what a step of an attempt takes; None before enough was heard."""
        known, steps = self._steps.get(job, (0, deque[float]()))
        if known != attempt or len(steps) < _ENOUGH:
            return None
        return median(steps) or None
