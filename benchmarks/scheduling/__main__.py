"""``python -m benchmarks.scheduling``: run, print, store, and check the expected ranges."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.record import store
from benchmarks.scheduling import completion, overhead

RESULTS = Path(__file__).parent / "results"
EXPECTED_MS = {("has", 2048, 640): 4.0, ("frenzy", 2048, 640): 20.0}  # full queue, loaded machine
EXPECTED_CHANGE = {  # frenzy's average completion time against a rival's, upper limits
    "has": -0.80,
    "greedy": -0.15,
    "srtf-preemptive": -0.30,
    "las": -0.60,
}
EXPECTED_P99 = {"greedy": -0.20}
EXPECTED_AGAINST = {"sia": -0.25, "sia-informed": -0.25, "sia-rigid": -0.45, "gavel": -0.45}
EXPECTED_MISLED = {"sia": -0.20}
EXPECTED_TIMES_BOUND = {"philly": 1.5, "helios": 1.6, "newtrace": 1.5}


def main(parts: Sequence[str]) -> int:
    """Run the named parts, or all; return 0 when every figure is inside its expected range."""
    known = {"overhead": _overhead, "completion": _completion, "rivals": _rivals, "misled": _misled}
    unknown = [part for part in parts if part not in known]
    if unknown:
        print(f"no part is called {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    inside = [known[part]() for part in parts or known]
    return 0 if all(inside) else 1


def _overhead() -> bool:
    costs = overhead.measure()
    full = {(cost.policy, cost.gpus, cost.jobs): cost.full_ms for cost in costs}
    inside = all(full[size] < limit for size, limit in EXPECTED_MS.items())
    expected = {f"{name} {gpus} x {jobs}": ms for (name, gpus, jobs), ms in EXPECTED_MS.items()}
    rows = [asdict(cost) for cost in costs]
    store(
        RESULTS / "overhead.json",
        {"expected_full_ms_below": expected, "inside": inside, "costs": rows},
    )
    for cost in costs:
        print(
            f"{cost.policy:16} {cost.gpus:6} GPUs {cost.jobs:6} jobs "
            f"full {cost.full_ms:9.3f} ms  one event {cost.event_ms:9.3f} ms"
        )
    return inside


def _completion() -> bool:
    return report_completion(completion.run_all())


def _rivals() -> bool:
    return report_rivals(completion.run_rivals(), completion.bounds(completion.RIVAL_SEEDS))


def _misled() -> bool:
    return report_misled(completion.run_misled())


def report_completion(runs: Sequence[completion.Run]) -> bool:
    """Store and print what the policies of the service reach; tell whether that is as expected."""
    change = partial(completion.change, runs)
    rivals = [name for name in completion.STRATEGIES if name != "frenzy"]
    changes = {
        "average": {rival: change("frenzy", rival) for rival in rivals},
        "p99": {rival: change("frenzy", rival, what="p99_h") for rival in rivals},
        "against greedy by scenario": {
            scenario: change("frenzy", "greedy", scenario) for scenario in completion.SCENARIOS
        },
        "against as predicted by scenario": {
            scenario: change("frenzy", "frenzy", scenario, rivals=completion.PLAIN)
            for scenario in completion.SCENARIOS
        },
        "with make before break against greedy without": change(
            "frenzy", "greedy", "make before break", rivals=completion.PLAIN
        ),
        "without one idea": {name: change(name, "frenzy") for name in completion.ABLATIONS},
    }
    inside = _below(changes["average"], EXPECTED_CHANGE) and _below(changes["p99"], EXPECTED_P99)
    expected = {"average": EXPECTED_CHANGE, "p99": EXPECTED_P99}
    return _stored("completion", expected, completion.SEEDS, changes, runs, {}, inside=inside)


def report_rivals(
    runs: Sequence[completion.Run], bounds_h: Mapping[tuple[str, int], float]
) -> bool:
    """Store and print what published rivals reach; tell whether that is as expected."""
    change = partial(completion.change, runs, "frenzy")
    changes = {
        "average": {rival: change(rival) for rival in completion.RIVALS},
        "p99": {rival: change(rival, what="p99_h") for rival in completion.RIVALS},
    }
    times = {
        run.workload: run.times_bound
        for run in completion.averages(runs, bounds_h)
        if run.policy == "frenzy"
    }
    inside = _below(changes["average"], EXPECTED_AGAINST) and all(
        value is not None and value < EXPECTED_TIMES_BOUND[workload]
        for workload, value in times.items()
    )
    expected = {"average": EXPECTED_AGAINST, "times_bound": EXPECTED_TIMES_BOUND}
    seeds = completion.RIVAL_SEEDS
    return _stored("rivals", expected, seeds, changes, runs, bounds_h, inside=inside)


def report_misled(runs: Sequence[completion.Run]) -> bool:
    """Store and print what wrong speeds do; tell whether that is as expected."""
    changes = {
        "average": {"sia": completion.change(runs, "frenzy", "sia", completion.MISLED)},
        "p99": {"sia": completion.change(runs, "frenzy", "sia", completion.MISLED, "p99_h")},
    }
    inside = _below(changes["average"], EXPECTED_MISLED)
    seeds = completion.RIVAL_SEEDS
    return _stored("misled", EXPECTED_MISLED, seeds, changes, runs, {}, inside=inside)


def _below(changes: Mapping[str, Mapping[str, float]], limits: Mapping[str, float]) -> bool:
    return all(changes[rival]["mean"] < limit for rival, limit in limits.items())


def _stored(
    part: str,
    expected: Mapping[str, object],
    seeds: Sequence[int],
    changes: Mapping[str, object],
    runs: Sequence[completion.Run],
    bounds_h: Mapping[tuple[str, int], float],
    *,
    inside: bool,
) -> bool:
    rows = [asdict(one) for one in completion.averages(runs, bounds_h)]
    result = {
        "expected_below": expected,
        "inside": inside,
        "seeds": list(seeds),
        "changes": changes,
        "table": rows,
    }
    store(RESULTS / f"{part}.json", result)
    _show(rows, changes)
    return inside


def _show(rows: Sequence[Mapping[str, object]], changes: Mapping[str, object]) -> None:
    for row in rows:
        print(" ".join(f"{value!s:>15}" for value in row.values()))
    print(json.dumps(changes, indent=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
