"""``python -m benchmarks.scheduling``: run, print, store, and check the expected ranges."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.record import store
from benchmarks.scheduling import completion, overhead

RESULTS = Path(__file__).parent / "results"
EXPECTED_MS = {("has", 2048, 640): 4.0, ("frenzy", 2048, 640): 20.0}  # full queue, loaded machine
EXPECTED_CHANGE = {  # frenzy's average completion time against a rival's, upper limits
    "has": -0.65,
    "greedy": -0.10,
    "srtf-preemptive": -0.10,
    "las": -0.30,
}
EXPECTED_AGAINST = {"sia": 0.0, "sia-informed": 0.0, "sia-rigid": -0.3, "gavel": -0.3}


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
    runs = completion.run_all()
    rows = completion.table(runs, completion.bounds(completion.SEEDS))
    rivals = [name for name in completion.STRATEGIES if name != "frenzy"]
    changes = {
        "average": {rival: completion.change(runs, "frenzy", rival) for rival in rivals},
        "p99": {rival: completion.change(runs, "frenzy", rival, what="p99_h") for rival in rivals},
        "against greedy by scenario": {
            scenario: completion.change(runs, "frenzy", "greedy", scenario)
            for scenario in completion.SCENARIOS
        },
        "without one idea": {
            name: completion.change(runs, name, "frenzy") for name in completion.ABLATIONS
        },
    }
    inside = all(
        changes["average"][rival]["mean"] < limit for rival, limit in EXPECTED_CHANGE.items()
    )
    store(
        RESULTS / "completion.json",
        {
            "expected_change_below": EXPECTED_CHANGE,
            "inside": inside,
            "changes": changes,
            "table": rows,
        },
    )
    _show(rows, changes)
    return inside


def _rivals() -> bool:
    runs = completion.run_rivals()
    rows = completion.table(runs, completion.bounds(completion.RIVAL_SEEDS))
    changes = {
        "average": {rival: completion.change(runs, "frenzy", rival) for rival in completion.RIVALS},
        "p99": {
            rival: completion.change(runs, "frenzy", rival, what="p99_h")
            for rival in completion.RIVALS
        },
    }
    inside = all(
        changes["average"][rival]["mean"] < limit for rival, limit in EXPECTED_AGAINST.items()
    )
    store(
        RESULTS / "rivals.json",
        {
            "expected_change_below": EXPECTED_AGAINST,
            "inside": inside,
            "seeds": completion.RIVAL_SEEDS,
            "changes": changes,
            "table": rows,
        },
    )
    _show(rows, changes)
    return inside


def _misled() -> bool:
    runs = completion.run_misled()
    change = completion.change(runs, "frenzy", "sia", completion.MISLED)
    rows = completion.table(runs, {})
    inside = change["mean"] < EXPECTED_AGAINST["sia"]
    store(
        RESULTS / "misled.json",
        {
            "expected_change_below": EXPECTED_AGAINST["sia"],
            "inside": inside,
            "seeds": completion.RIVAL_SEEDS,
            "changes": {"average": {"sia": change}},
            "table": rows,
        },
    )
    _show(rows, change)
    return inside


def _show(rows: Sequence[Mapping[str, object]], changes: Mapping[str, object]) -> None:
    for row in rows:
        print(" ".join(f"{value!s:>15}" for value in row.values()))
    print(json.dumps(changes, indent=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
