"""``python -m benchmarks.scheduling``: run, print, store, and check the expected ranges."""

import json
import sys
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


def main() -> int:
    """Return 0 when every figure is inside its expected range."""
    inside = [_overhead(), _completion()]
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
    rows = completion.table(runs)
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
    for row in rows:
        print(" ".join(f"{value!s:>15}" for value in row.values()))
    print(json.dumps(changes, indent=1))
    return inside


if __name__ == "__main__":
    sys.exit(main())
