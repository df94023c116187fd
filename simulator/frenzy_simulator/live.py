"""A job while it is in the simulated cluster."""

from dataclasses import dataclass
from typing import Final

from frenzy_scheduler.core.decisions import Progress, QueuedJob, RunningJob
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_simulator.jobs import SimJob

_MEASURED_STEPS: Final = 3  # after so many a job's speed is known


@dataclass(slots=True, kw_only=True)
class LiveJob:
    """One job's state. ``steps_left`` is what policies are told; ``real_left`` what is true."""

    job: SimJob
    plans: tuple[ResourcePlan, ...]
    arrived_ms: int
    restart_s: float
    move_s: float | None = None  # the price of a move beside training; None: it stops first
    steps_left: float
    real_left: float
    placement: Placement | None = None
    plan: ResourcePlan | None = None
    target: Placement | None = None  # where it gets ready to go on
    step_s: float = 0.0  # real, on the present placement
    placed_ms: int = 0
    first_placed_ms: int = 0
    trains_from_ms: int = 0  # start-up and restore are over
    generation: int = 0  # of placements: an end planned for an older one is void
    queued_since_ms: int = 0
    waited_ms: int = 0
    attained_device_s: float = 0.0
    starts: int = 0
    preemptions: int = 0
    ooms: int = 0
    restart_device_s: float = 0.0
    queued: QueuedJob | None = None  # kept while nothing of it changes

    def place(self, placement: Placement, now_ms: int, step_s: float, start_s: float) -> int:
        """Take devices; return when the job will be over if nothing happens."""
        self.plan = next(plan for plan in self.plans if plan.id == placement.plan)
        self.placement, self.step_s, self.placed_ms = placement, step_s, now_ms
        self.trains_from_ms = now_ms + round(start_s * 1000)
        self.generation += 1
        self.waited_ms += now_ms - self.queued_since_ms
        if self.starts:
            self.restart_device_s += start_s * len(placement.devices)
        else:
            self.first_placed_ms = now_ms
        self.starts += 1
        self.queued = None
        return self.trains_from_ms + round(self.real_left * step_s * 1000)

    def leave(self, now_ms: int, *, lost_s: float = 0.0) -> None:
        """Give the devices back at a checkpoint; the last ``lost_s`` of training are void."""
        self.account(now_ms, lost_s=lost_s)
        self.placement = self.plan = None
        self.generation += 1
        self.queued_since_ms = now_ms

    def account(self, now_ms: int, *, lost_s: float = 0.0) -> None:
        """Add up what the present placement has done since it was last looked at."""
        if self.placement is None:
            return
        devices = len(self.placement.devices)
        self.attained_device_s += devices * (now_ms - self.placed_ms) / 1000
        done = max((now_ms - self.trains_from_ms) / 1000 - lost_s, 0.0) / self.step_s
        self.steps_left = max(self.steps_left - done, 0.0)
        self.real_left = max(self.real_left - done, 0.0)

    def as_queued(self) -> QueuedJob:
        """Return the job as the scheduler's queue holds it."""
        if self.queued is None:
            self.queued = QueuedJob(
                id=self.job.id,
                sequence=self.job.sequence,
                plans=self.plans,
                version=self.generation,
                project=self.job.project,
                priority=self.job.priority,
                progress=self._progress(self.steps_left, self.attained_device_s),
            )
        return self.queued

    def as_running(self, now_ms: int) -> RunningJob:
        """Return the job as the scheduler sees it while it holds devices.

        Raises:
            ValueError: it holds none.
        """
        if self.placement is None:
            raise ValueError(f"job {self.job.id} is not placed")
        done = max(now_ms - self.trains_from_ms, 0) / 1000 / self.step_s
        held_s = len(self.placement.devices) * (now_ms - self.placed_ms) / 1000
        return RunningJob(
            id=self.job.id,
            sequence=self.job.sequence,
            plans=self.plans,
            placement=self.placement,
            version=self.generation,
            placed_ms=self.placed_ms,
            preemptible=self.target is None,
            project=self.job.project,
            priority=self.job.priority,
            progress=self._progress(
                max(self.steps_left - done, 0.0),
                self.attained_device_s + held_s,
                self.step_s if done >= _MEASURED_STEPS else None,
            ),
        )

    def _progress(
        self, steps_left: float, attained_device_s: float, step_s: float | None = None
    ) -> Progress:
        return Progress(
            steps_left=steps_left,
            step_s=step_s,
            attained_device_s=attained_device_s,
            arrived_ms=self.arrived_ms,
            restart_s=self.restart_s,
            move_s=self.move_s,
        )
