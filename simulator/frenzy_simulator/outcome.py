"""What a simulation found out, job by job."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from frenzy_shared.domain.ids import DeviceId, JobId, NodeId
from frenzy_shared.domain.placement import DeviceRef


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One job's story in seconds. ``alone_s`` is what it takes on an empty cluster.

    ``mean_open`` is how many jobs were in the system, on average, while this one was.
    """

    id: JobId
    submit_s: float
    finish_s: float
    start_s: float  # when it first got devices
    wait_s: float
    alone_s: float
    device_s: float
    restart_device_s: float
    preemptions: int
    ooms: int
    mean_open: float

    @property
    def completion_s(self) -> float:
        """Return the time from submission to the end."""
        return self.finish_s - self.submit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One job's time on some devices."""

    job: JobId
    kind: str
    devices: tuple[DeviceRef, ...]
    from_s: float
    until_s: float

    @property
    def devices_by_node(self) -> list[tuple[NodeId, DeviceId]]:
        """Return node and device of each."""
        return [(ref.node, ref.device) for ref in self.devices]


@runtime_checkable
class Solver(Protocol):
    """A strategy that solves programs against the clock."""

    @property
    def unsolved(self) -> int:
        """Return how often the time limit struck before the best answer was proven."""
        ...


@dataclass(kw_only=True)
class Outcome:
    """All that one policy did with one workload. ``never`` are jobs that fit no plan at all."""

    policy: str
    devices: int
    done: list[JobOutcome] = field(default_factory=list)
    never: list[JobId] = field(default_factory=list)
    unfinished: list[JobId] = field(default_factory=list)  # the cluster shrank below every plan
    stays: list[Stay] = field(default_factory=list)
    decision_ns: list[int] = field(default_factory=list)
    preemptions: int = 0
    node_failures: int = 0
    unsolved: int = 0  # decisions in which a solver's time limit struck
