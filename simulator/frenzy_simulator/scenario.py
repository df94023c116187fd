"""The knobs of a simulation, and what they make really happen, seeded and repeatable."""

import math
import random
from dataclasses import dataclass, fields

from frenzy_scheduler.core.prices import WARM_SHARE
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.jobs import SimJob


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Costs, failures and errors. Times in seconds; every default is a modest real value.

    A start takes ``start_s``; a restart also saves and loads the checkpoint at ``storage_bytes_s``,
    all times ``restart_factor``. With ``make_before_break`` a job that goes on with idle devices
    that are none of its own holds both for the time of a start, trains meanwhile, and then pays
    only the measured share of it. A real step takes the predicted one times a log-normal factor of
    ``prediction_sigma``, drawn per (job, kind, count), so that errors change the order of plans.
    ``split_slowdown`` is the share by which each node more than needed slows a gang. Nodes fail
    every ``node_mtbf_s`` on average (0: never); what was done since the last checkpoint is lost.
    """

    seed: int = 0
    start_s: float = 45.0
    storage_bytes_s: float = 2e9
    restart_factor: float = 1.0
    prediction_sigma: float = 0.0
    split_slowdown: float = 0.0
    early_end_share: float = 0.0  # of jobs, which end at a uniform point of their steps
    node_mtbf_s: float = 0.0
    node_repair_s: float = 3600.0
    checkpoint_interval_s: float = 1800.0
    make_before_break: bool = False
    tick_s: float = 60.0  # how often a preemptive policy looks again without an event

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        for name in (item.name for item in fields(self) if item.name != "seed"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InvalidScenario(f"{name} is {value}; it must be zero or more, and finite")
        for name in ("storage_bytes_s", "checkpoint_interval_s", "tick_s"):
            if getattr(self, name) == 0:
                raise InvalidScenario(f"{name} must be more than zero")
        if self.early_end_share > 1:
            raise InvalidScenario(f"early_end_share is {self.early_end_share}; at most 1")

    def restart_s(self, checkpoint_bytes: int) -> float:
        """Return what stopping a job and starting it elsewhere costs."""
        moved_s = 2 * checkpoint_bytes / self.storage_bytes_s
        return self.restart_factor * (self.start_s + moved_s)

    def move_s(self, checkpoint_bytes: int) -> float | None:
        """Return what a job loses that gets ready elsewhere first; None when none does."""
        if not self.make_before_break:
            return None
        moved_s = 2 * checkpoint_bytes / self.storage_bytes_s
        return self.restart_factor * (WARM_SHARE * self.start_s + moved_s)

    def real_steps(self, job: SimJob) -> float:
        """Return the steps after which the job is really over."""
        if self.early_end_share == 0:
            return job.steps
        draw = self._random("end", job.id)
        ends_early = draw.random() < self.early_end_share
        return job.steps * draw.random() if ends_early else job.steps

    def real_step_s(self, job: JobId, plan: ResourcePlan, nodes: int, nodes_needed: int) -> float:
        """Return what a step really takes on a placement over ``nodes`` nodes."""
        factor = 1.0 + self.split_slowdown * max(nodes - nodes_needed, 0)
        if self.prediction_sigma > 0:
            draw = self._random("speed", job, plan.kind, plan.device_count)
            factor *= math.exp(draw.gauss(0.0, self.prediction_sigma))
        return plan.speed.step_s * factor

    def time_to_failure_s(self, node: NodeId, nth: int) -> float | None:
        """Return how long a node lives after its ``nth`` repair; None when nodes never fail."""
        if self.node_mtbf_s == 0:
            return None
        return self._random("node", node, nth).expovariate(1.0 / self.node_mtbf_s)

    def _random(self, *about: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *about))))  # noqa: S311 - not a secret
