"""Least attained service first, in two queues: Tiresias without knowledge of durations.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI'19),
discretised 2D-LAS. Ours: plans come from MARP in its order, and a job in the lower queue rises
again when it has waited ``promote_after`` times as long as it has had service. Service counts
for less the more a job weighs (``urgency``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from frenzy_scheduler.core.decisions import QueuedJob, RunningJob, View
from frenzy_scheduler.core.policies.walk import walk
from frenzy_scheduler.core.urgency import weight
from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.plan import ResourcePlan


@dataclass(frozen=True, slots=True)
class Las:
    """Jobs that have had little come first; by turn inside a queue."""

    name: str = "las"
    preemptive: bool = True
    threshold_device_s: float = 3600.0 * 8  # device-seconds after which a job is demoted
    promote_after: float = 8.0

    def allocate(self, view: View) -> Mapping[JobId, ResourcePlan]:
        """Hand out devices by queue, then arrival."""

        def rank(job: QueuedJob | RunningJob) -> tuple[float | str, ...]:
            return (self._queue(job, view.now_ms), job.turn_ms, job.sequence, job.id)

        return walk(view, rank)

    def _queue(self, job: QueuedJob | RunningJob, now_ms: int) -> int:
        attained = job.progress.attained_device_s / weight(job.priority, job.standing)
        if attained < self.threshold_device_s:
            return 0
        age_s = (now_ms - job.progress.arrived_ms) / 1000
        return 0 if age_s > self.promote_after * attained else 1
