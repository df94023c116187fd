"""Whole inputs of a cycle for tests, from a few words."""

from collections.abc import Mapping, Sequence

from tests.support.scheduling import cluster, device, node
from tests.support.simulation import running

from frenzy_scheduler.core.admission import Holding
from frenzy_scheduler.core.decisions import QueuedJob, RunningJob
from frenzy_scheduler.core.policies import policy_named
from frenzy_scheduler.core.question import Question
from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.plan import ResourcePlan

NOON = 1_800_000_000_000


def running_on(
    name: str, sequence: int, plan: ResourcePlan, *devices: str, steps: float | None = 100.0
) -> RunningJob:
    """A job that was placed an hour ago on devices written as "node/kind-number"."""
    placed_ms = NOON - 3_600_000
    return running(name, sequence, plan, devices=list(devices), steps=steps, placed_ms=placed_ms)


def a_question(
    layout: Mapping[str, Mapping[str, int]],
    queue: Sequence[QueuedJob],
    held: Sequence[RunningJob] = (),
    *,
    policy: str = "has",
    more: Sequence[NodeRecord] = (),
) -> Question:
    """A cluster written as {node: {kind: devices}}; what ``held`` jobs have is owned by them."""
    nodes = [
        node(
            name,
            *(device(f"{kind}-{n}", kind) for kind, count in kinds.items() for n in range(count)),
        )
        for name, kinds in layout.items()
    ]
    owned = {ref.key: f"{job.id}#1" for job in held for ref in job.placement.devices}
    found = policy_named(policy)
    assert found is not None
    return Question(
        queue=list(queue),
        running=list(held),
        cluster=cluster([*nodes, *more], owned),
        now_ms=NOON,
        policy=found,
        holdings=tuple(
            Holding(job.project, job.placement.kind, len(job.placement.devices)) for job in held
        ),
    )
