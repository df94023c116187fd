"""Run several policies on the same workload, each in its own process."""

import os
import queue as queues
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from multiprocessing import Manager, get_context
from typing import Any, Final

from frenzy_scheduler.core.decisions import Strategy
from frenzy_scheduler.core.policies import POLICIES, PREEMPTIVE, policy_named
from frenzy_scheduler.core.policies.has import Has
from frenzy_shared.domain.cluster import NodeRecord, summarize_kinds
from frenzy_shared.domain.project import Project
from frenzy_shared.errors import Misconfigured
from frenzy_shared.installing import install
from frenzy_simulator.bound import bound_avg_s
from frenzy_simulator.engine import Simulation
from frenzy_simulator.errors import InvalidScenario
from frenzy_simulator.jobs import SimJob
from frenzy_simulator.metrics import Summary
from frenzy_simulator.outcome import Outcome
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import Marp
from frenzy_simulator.users import ManualUsers

MANUAL: Final = "manual"  # people choose GPUs; a free GPU goes to the first who can use it
RIVALS: Final = ("sia", "sia-informed", "sia-rigid", "gavel")  # published ones; need a solver
RIGID: Final = frozenset({"sia-rigid", "gavel"})  # they keep the count that users asked for
NAMES: Final = (*(one.name for one in (*POLICIES, *PREEMPTIVE)), *RIVALS, MANUAL)
_REPORTS: Final = 200  # of progress, per policy

Progress = Callable[[str, int, int], None]  # policy, jobs that are over, jobs in all


class Bound(StrEnum):
    """Which lower bound to compute: ``LP`` is tighter, ``FAST`` takes no solver and little time."""

    LP = "lp"
    FAST = "fast"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One workload, one cluster, one scenario, several policies."""

    jobs: Sequence[SimJob]
    nodes: Sequence[NodeRecord]
    policies: Sequence[str]
    scenario: Scenario
    projects: Sequence[Project] = ()  # those with quotas

    def __post_init__(self) -> None:
        """Refuse unknown and repeated policies before anything runs."""
        for name in self.policies:
            if name not in NAMES:
                raise InvalidScenario(
                    f"no policy is called {name[:40]!r}",
                    suggestions=[f"known policies: {', '.join(NAMES)}"],
                )
        if not self.policies or len(set(self.policies)) < len(self.policies):
            raise InvalidScenario("name at least one policy, and each only once")

    def run(self, progress: Progress | None = None) -> list[Outcome]:
        """Simulate every policy, as many at once as there are cores, in the order given."""
        workers = min(len(self.policies), len(os.sched_getaffinity(0)))
        if workers == 1:
            return [self.run_one(name, progress) for name in self.policies]
        with (
            Manager() as manager,
            ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        ):
            reports: queues.Queue[tuple[str, int, int]] = manager.Queue()
            runs = [pool.submit(_run, self, name, reports) for name in self.policies]
            _relay(reports, runs, progress)
            return [run.result() for run in runs]

    def run_one(self, policy: str, progress: Progress | None = None) -> Outcome:
        """Simulate one policy in this process."""
        kinds = summarize_kinds(self.nodes)
        users = ManualUsers(kinds=kinds, seed=self.scenario.seed) if policy == MANUAL else None
        simulation = Simulation(
            jobs=self.jobs,
            nodes=self.nodes,
            model=Marp(kinds),
            strategy=_strategy(policy),
            scenario=self.scenario,
            users=users,
            name=policy,
            projects=self.projects,
            rigid=policy in RIGID,
        )
        return simulation.run(_thinned(policy, progress))

    def bound_avg_jct_s(self, which: Bound = Bound.FAST) -> float | None:
        """Return a lower bound on the average completion time; None when none is wanted.

        Where the linear program would be too large or take too long, the fast bound stands in.

        Raises:
            Misconfigured: ``LP`` without a solver.
        """
        if which is Bound.NONE:
            return None
        kinds = summarize_kinds(self.nodes)
        devices, model = {kind.kind: kind.total for kind in kinds}, Marp(kinds)
        fast_s = bound_avg_s(self.jobs, model, devices, self.scenario)
        if which is Bound.FAST:
            return fast_s
        found = _with_solver("frenzy_simulator.lp_bound", "bound lp")
        tight_s = found.lp_bound_avg_s(self.jobs, model, devices, self.scenario)
        return fast_s if tight_s is None else max(tight_s, fast_s)


def as_json(summaries: Sequence[Summary], bound_s: float | None) -> dict[str, Any]:
    """Return results as the command writes them."""
    return {"policies": [one.as_json() for one in summaries], "bound_avg_jct_s": bound_s}


def _strategy(policy: str) -> Strategy:
    if policy in RIVALS:
        found: Strategy = _with_solver("frenzy_simulator.rivals.roster", f"policy {policy}").rival(
            policy
        )
        return found
    known = Has() if policy == MANUAL else policy_named(policy)
    if known is None:
        raise InvalidScenario(f"no policy is called {policy!r}")
    return known


def _with_solver(module: str, what: str) -> Any:  # noqa: ANN401 - whatever a module holds
    """Import what needs a solver only when it is asked for."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        raise Misconfigured(
            f"{what} needs {missing.name}: it solves linear or integer programs",
            suggestions=[install("bench")],
        ) from missing


def _run(
    comparison: Comparison, policy: str, reports: "queues.Queue[tuple[str, int, int]]"
) -> Outcome:
    return comparison.run_one(policy, lambda *report: reports.put(report))


def _thinned(policy: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    """Report progress only when it moved by a visible amount."""
    if progress is None:
        return None
    last = -1

    def watch(done: int, total: int) -> None:
        nonlocal last
        step = done * _REPORTS // max(total, 1)
        if step > last:
            last = step
            progress(policy, done, total)

    return watch


def _relay(
    reports: "queues.Queue[tuple[str, int, int]]",
    runs: Sequence[Future[Outcome]],
    progress: Progress | None,
) -> None:
    """Pass on what the processes report until all are over."""
    while True:
        over = not wait(runs, timeout=0).not_done
        try:
            report = reports.get(timeout=0.2)
        except queues.Empty:
            if over:
                return
            continue
        if progress is not None:
            progress(*report)
