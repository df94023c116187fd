"""Small simulations whose outcome can be computed by hand."""

from collections.abc import Mapping
from dataclasses import replace

from tests.support.scheduling import plan as base_plan

from frenzy_scheduler.core.decisions import Progress, QueuedJob, RunningJob
from frenzy_scheduler.core.policies import policy_named
from frenzy_shared.domain.cluster import Device, NodeRecord, NodeState
from frenzy_shared.domain.ids import DeviceId, JobId, NodeId
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture, Pins, TrainingSetup
from frenzy_shared.domain.placement import DeviceRef, Placement
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.domain.structure import GPT2
from frenzy_simulator.engine import Simulation
from frenzy_simulator.jobs import SimJob
from frenzy_simulator.outcome import Outcome
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import Table

GIB = 2**30
FREE = Scenario(start_s=0.0)  # starts and restarts cost nothing (checkpoints weigh nothing here)


def a_plan(name: str, kind: str, count: int, step_s: float) -> ResourcePlan:
    made = base_plan(name, kind, count)
    return replace(made, speed=replace(made.speed, step_s=step_s, total_s=1000 * step_s))


def a_setup(number: int = 1) -> TrainingSetup:
    """A training set-up of its own for each number; nothing reads its dimensions."""
    model = ModelArchitecture(
        family=Family.GPT2,
        structure=GPT2,
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        intermediate_size=8,
        vocab_size=number,
        max_positions=8,
        rotary_dim=0,
        tied_embeddings=True,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation="gelu_new",
    )
    return TrainingSetup(
        model=model,
        sequence_length=8,
        global_batch_size=8,
        optimizer_steps=None,
        optimizer="adamw",
        attention=Attention.SDPA,
        learning_rate=1e-3,
        pins=Pins(),
    )


def nodes(**kinds: tuple[int, int]) -> tuple[NodeRecord, ...]:
    """Nodes as kind=(nodes, devices of each)."""
    made = []
    for kind, (count, size) in kinds.items():
        for number in range(count):
            devices = tuple(
                Device(id=DeviceId(f"{kind}-{n}"), kind=kind, memory_bytes=GIB) for n in range(size)
            )
            made.append(
                NodeRecord(
                    id=NodeId(f"{kind}-{number}"),
                    state=NodeState.UP,
                    version=1,
                    epoch=1,
                    boot_id="b",
                    address="",
                    devices=devices,
                )
            )
    return tuple(made)


def a_job(
    name: str, at_s: float, steps: float, setup: TrainingSetup, *, sequence: int = 0, gpus: int = 1
) -> SimJob:
    return SimJob(
        id=JobId(name),
        sequence=sequence,
        submit_s=at_s,
        setup=setup,
        steps=steps,
        gpus_requested=gpus,
    )


def simulate(
    policy: str,
    jobs: list[SimJob],
    machines: tuple[NodeRecord, ...],
    rows: Mapping[TrainingSetup, tuple[ResourcePlan, ...]],
    scenario: Scenario = FREE,
    size_bytes: int = 0,
    **more: object,
) -> Outcome:
    numbered = [replace(job, sequence=number) for number, job in enumerate(jobs, 1)]
    simulation = Simulation(
        jobs=numbered,
        nodes=machines,
        model=Table(dict(rows), size_bytes),
        strategy=policy_named(policy),
        scenario=scenario,
        **more,
    )
    return simulation.run()


def ends(outcome: Outcome) -> dict[str, float]:
    return {job.id: job.finish_s for job in outcome.done}


def waiting(
    name: str,
    sequence: int,
    *plans: ResourcePlan,
    steps: float | None = 100.0,
    arrived_ms: int = 0,
    **fields: object,
) -> QueuedJob:
    progress = Progress(steps_left=steps, arrived_ms=arrived_ms)
    return QueuedJob(id=JobId(name), sequence=sequence, plans=plans, progress=progress, **fields)


def running(
    name: str,
    sequence: int,
    plan: ResourcePlan,
    *others: ResourcePlan,
    devices: list[str],
    steps: float | None = 100.0,
    attained: float = 0.0,
    restart_s: float = 0.0,
    placed_ms: int = 0,
    preemptible: bool = True,
    **fields: object,
) -> RunningJob:
    """A job on devices written as "node/device"."""
    refs = tuple(
        DeviceRef(node=NodeId(n), device=DeviceId(d), epoch=1)
        for n, d in (text.split("/") for text in devices)
    )
    return RunningJob(
        id=JobId(name),
        sequence=sequence,
        plans=(plan, *others),
        placement=Placement(plan=plan.id, kind=plan.kind, devices=refs),
        placed_ms=placed_ms,
        preemptible=preemptible,
        progress=Progress(steps_left=steps, attained_device_s=attained, restart_s=restart_s),
        **fields,
    )
