"""Simulated months: workloads that keep a 64-GPU cluster busy, with errors and early ends."""

from dataclasses import dataclass

from benchmarks.eta.asking import Asked, Asker
from benchmarks.scheduling.completion import CLUSTER

from frenzy_scheduler.core.forecast import USUAL, Assumptions
from frenzy_scheduler.core.policies import policy_named
from frenzy_shared.domain.cluster import summarize_kinds
from frenzy_simulator.cluster import parse_cluster
from frenzy_simulator.engine import Simulation
from frenzy_simulator.generator import generate
from frenzy_simulator.presets import to_sim_jobs
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import Marp

DAYS = 30


@dataclass(frozen=True, kw_only=True)
class Month:
    """One month of one workload under one policy. ``every_h``: between two questions."""

    policy: str
    workload: str
    per_hour: float
    seed: int
    days: int = DAYS
    every_h: float = 6.0
    sigma: float = 0.3
    early_end_share: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A prediction with what became of it, in seconds after it was asked for."""

    asked: Asked
    start_s: float | None  # None: it had started before
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Lived:
    """A month as it was lived."""

    month: Month
    outcomes: list[Outcome]
    cpu_ms: list[tuple[int, float]]
    futures: list[int]


def live(month: Month, assumptions: Assumptions = USUAL) -> Lived:
    """Simulate a month and ask on the way."""
    strategy = policy_named(month.policy)
    if strategy is None:
        raise ValueError(f"no policy is called {month.policy}")
    nodes = parse_cluster(CLUSTER)
    model = Marp(summarize_kinds(nodes))
    count = round(month.per_hour * 24 * month.days)
    trace = generate(month.workload, count, per_hour=month.per_hour, largest=64, seed=month.seed)
    scenario = Scenario(
        seed=month.seed,
        prediction_sigma=month.sigma,
        early_end_share=month.early_end_share,
    )
    asker = Asker(
        strategy=strategy,
        seed=month.seed,
        every_s=month.every_h * 3600,
        start_s=scenario.start_s,
        assumptions=assumptions,
    )
    found = Simulation(
        jobs=to_sim_jobs(trace, model, "RTX 2080 Ti", month.seed),
        nodes=nodes,
        model=model,
        strategy=strategy,
        scenario=scenario,
        look=asker.look,
    ).run()
    done = {job.id: job for job in found.done}
    outcomes = [
        Outcome(
            asked=asked,
            start_s=job.start_s - asked.at_s if job.start_s > asked.at_s else None,
            end_s=job.finish_s - asked.at_s,
        )
        for asked in asker.asked
        if (job := done.get(asked.job)) is not None
    ]
    return Lived(month=month, outcomes=outcomes, cpu_ms=asker.cpu_ms, futures=asker.futures)
