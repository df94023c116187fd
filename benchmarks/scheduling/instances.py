"""Instances to measure decisions on: mixed clusters of any size, queues of MARP's real plans."""

from dataclasses import dataclass

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import (
    Place,
    Progress,
    QueuedJob,
    RunningJob,
    Strategy,
)
from frenzy_scheduler.core.snapshot import Snapshot, Statement
from frenzy_shared.domain.cluster import ClusterSnapshot, NodeRecord, summarize_kinds
from frenzy_simulator.cluster import parse_cluster
from frenzy_simulator.generator import generate
from frenzy_simulator.presets import to_sim_jobs
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import Marp

SETTLED_MS = 24 * 3600 * 1000  # everything has run for a day: nothing is protected any more


@dataclass(frozen=True)
class Instance:
    """A queue, the jobs that run, and the devices that are idle."""

    queue: list[QueuedJob]
    running: list[RunningJob]
    snapshot: Snapshot


def mixed_cluster(gpus: int) -> tuple[NodeRecord, ...]:
    """Return a cluster of 3/8 T4, 3/8 RTX 2080 Ti and 1/4 A100; ``gpus`` is a multiple of 8."""
    nodes = gpus // 8
    ampere, turing = max(nodes // 4, 1), max(nodes * 3 // 8, 1)
    groups = [
        {"kind": "A100 SXM4 40GB", "gpus": 8, "count": ampere},
        {"kind": "RTX 2080 Ti", "gpus": 8, "count": turing},
        {"kind": "T4", "gpus": 4, "count": max(2 * (nodes - ampere - turing), 1)},
    ]
    return parse_cluster({"nodes": groups})


def empty(gpus: int, jobs: int, seed: int = 0) -> Instance:
    """Return an idle cluster and a full queue."""
    nodes = mixed_cluster(gpus)
    kinds = summarize_kinds(nodes)
    model, scenario = Marp(kinds), Scenario()
    trace = generate("helios", jobs, largest=gpus, seed=seed)
    queue = [
        QueuedJob(
            id=job.id,
            sequence=job.sequence,
            plans=model.plans(job.setup),
            progress=Progress(
                steps_left=job.steps,
                arrived_ms=round(job.submit_s * 1000),
                restart_s=scenario.restart_s(model.checkpoint_bytes(job.setup)),
            ),
        )
        for job in to_sim_jobs(trace, model, "RTX 2080 Ti", seed)
    ]
    return Instance(queue, [], Snapshot.of(ClusterSnapshot(nodes=nodes, owners={})))


def one_event(gpus: int, jobs: int, policy: Strategy) -> Instance:
    """Return a cluster that ``policy`` has filled, just after one of its jobs has ended."""
    start = empty(gpus, jobs)
    placed = {
        decision.job: decision.placement
        for decision in cycle(start.queue, start.snapshot, 0, policy)
        if isinstance(decision, Place)
    }
    running = [
        RunningJob(
            id=job.id,
            sequence=job.sequence,
            plans=job.plans,
            placement=placed[job.id],
            progress=job.progress,
        )
        for job in start.queue
        if job.id in placed
    ]
    for job in running[1:]:
        Statement(start.snapshot).allocate(job.placement.kind, job.placement.devices)
    queue = [job for job in start.queue if job.id not in placed]
    return Instance(queue, running[1:], start.snapshot)
