"""One job on its way through one possible future."""

from typing import Final

from frenzy_scheduler.core.decisions import (
    Progress,
    QueuedJob,
    RunningJob,
    holds_for_s,
    seconds_left,
)
from frenzy_scheduler.core.luck import Luck
from frenzy_shared.domain.ids import JobId, PlanId
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.plan import ResourcePlan

_LEAST_S: Final = 0.001


class Voyage:
    """Where a job is. Seconds count from the present.

    ``left`` is the share of the work that it had in the present; it is over at ``over_at``.
    """

    def __init__(
        self, given: QueuedJob | RunningJob, luck: Luck, now_ms: int, *, bulk: float = 0.0
    ) -> None:
        self.id: JobId = given.id
        self.placement: Placement | None = None
        self.plan: ResourcePlan | None = None
        self.project = given.project
        self.bulk = bulk  # so many jobs that arrive after the present, one by one; 0: it is there
        self.generation = 0  # of placements: an end planned for an older one is void
        self.ends_s = 0.0
        self._given, self._luck, self._now_ms = given, luck, now_ms
        self._over_at = luck.over_at(given.id)
        self._left = 1.0
        self._attained_device_s = given.progress.attained_device_s
        self._restarts = isinstance(given, RunningJob) or self._attained_device_s > 0
        self._errors: dict[PlanId, float] = {}
        self._placed_ms = self._version = 0
        self._placed_s = self._trains_from_s = 0.0
        self._whole_s = _LEAST_S  # what all of its work would take on the present placement
        self._queued = given if isinstance(given, QueuedJob) else None

    def resume(self, start_s: float) -> bool:
        """Go on where a running job is; False when nobody knows what it runs with.

        One that was placed less than ``start_s`` ago and has no measured step is still starting.
        """
        given = self._given
        if not isinstance(given, RunningJob) or given.plan is None:
            return False
        plan, progress = given.plan, given.progress
        left_s, starting_s = holds_for_s(given, plan, self._now_ms), 0.0
        age_s = max(self._now_ms - given.placed_ms, 0) / 1000
        self._over_at = self._luck.over_at(self.id, age_s / max(age_s + left_s, _LEAST_S))
        if progress.step_s is not None:
            self._errors[plan.id] = progress.step_s / plan.speed.step_s
        else:
            left_s *= self._error(plan)
            if progress.steps_left is not None:
                starting_s = max(start_s - age_s, 0.0)
        self._run(given.placement, left_s, starting_s)
        self.plan = plan
        self._placed_ms = given.placed_ms
        return True

    def start(self, placement: Placement, now_s: float, start_s: float) -> None:
        """Take devices; the first step comes after the start, or after a restart's price."""
        plan = next(plan for plan in self._given.plans if plan.id == placement.plan)
        progress = self._given.progress
        delay_s = max(progress.restart_s, start_s) if self._restarts else start_s
        self._placed_s = now_s
        self._placed_ms = self._now_ms + round(now_s * 1000)
        whole_s = seconds_left(progress, plan) * self._error(plan) * max(self.bulk, 1.0)
        self._run(placement, whole_s, now_s + delay_s)
        self.plan = plan
        self._restarts = True

    def stop(self, now_s: float) -> None:
        """Give the devices up at a checkpoint and wait again."""
        self._left, self._attained_device_s = self._done(now_s)
        self.placement = self.plan = self._queued = None

    def held_device_s(self, now_s: float) -> float:
        """Return the device-seconds since the job got the devices that it holds."""
        held = self.placement.devices if self.placement is not None else ()
        return len(held) * (now_s - self._placed_s)

    def as_queued(self) -> QueuedJob:
        """Return the job as the queue holds it."""
        if self._queued is None:
            given = self._given
            self._queued = QueuedJob(
                id=given.id,
                sequence=given.sequence,
                plans=given.plans,
                progress=self._progress(self._left, self._attained_device_s),
                project=given.project,
                priority=given.priority,
                standing=given.standing,
                nodes=given.nodes,
            )
        return self._queued

    def as_running(self, now_s: float) -> RunningJob:
        """Return the job as the scheduler sees it while it holds devices."""
        if self.placement is None:
            raise ValueError(f"job {self.id} is not placed")
        given = self._given
        return RunningJob(
            id=given.id,
            sequence=given.sequence,
            plans=given.plans,
            placement=self.placement,
            placed_ms=self._placed_ms,
            preemptible=given.preemptible if isinstance(given, RunningJob) else True,
            progress=self._progress(*self._done(now_s)),
            project=given.project,
            priority=given.priority,
            standing=given.standing,
            nodes=given.nodes,
        )

    def _error(self, plan: ResourcePlan) -> float:
        if plan.id not in self._errors:
            self._errors[plan.id] = self._luck.error(self.id, plan.id)
        return self._errors[plan.id]

    def _run(self, placement: Placement, whole_s: float, trains_from_s: float) -> None:
        self.placement = placement
        self.generation += 1
        self._queued = None
        self._whole_s = max(whole_s, _LEAST_S)
        self._trains_from_s = trains_from_s
        self.ends_s = trains_from_s + max(self._left - self._over_at, 0.0) * self._whole_s

    def _done(self, now_s: float) -> tuple[float, float]:
        """Return the share that is left now, and the device-seconds that the job has had."""
        if self.placement is None:
            return self._left, self._attained_device_s
        trained_s = max(now_s - self._trains_from_s, 0.0)
        left = max(self._left - trained_s / self._whole_s, 0.0)
        return left, self._attained_device_s + self.held_device_s(now_s)

    def _progress(self, left: float, attained_device_s: float) -> Progress:
        given = self._given.progress
        return Progress(
            steps_left=None if given.steps_left is None else given.steps_left * left,
            attained_device_s=attained_device_s,
            arrived_ms=given.arrived_ms,
            restart_s=given.restart_s,
        )
