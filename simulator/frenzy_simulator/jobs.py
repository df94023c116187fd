"""The jobs of a simulation."""

from dataclasses import dataclass
from typing import Final

from frenzy_scheduler.core.urgency import NORMAL
from frenzy_shared.domain.ids import JobId, ProjectName
from frenzy_shared.domain.model import TrainingSetup

DEFAULT_PROJECT: Final = ProjectName("default")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job as a trace tells it. ``duration_s`` is what it took on ``gpus_requested`` GPUs."""

    id: JobId
    submit_s: float
    duration_s: float
    gpus_requested: int
    model_or_class: str = ""
    user_vc: str = ""
    status: str = ""
    priority: int = NORMAL
    project: ProjectName = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """One job as the simulator runs it: ``steps`` optimizer steps of a training set-up.

    ``gpus_requested`` is only what a user would have asked for; Frenzy's policies do not see it.
    """

    id: JobId
    sequence: int  # arrival order, from 1
    submit_s: float
    setup: TrainingSetup  # of a run without end: what is planned once for all jobs alike
    steps: float
    gpus_requested: int
    user_vc: str = ""
    priority: int = NORMAL
    project: ProjectName = DEFAULT_PROJECT
