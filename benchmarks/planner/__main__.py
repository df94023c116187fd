"""``python -m benchmarks.planner [--replicas]``: how long MARP takes to plan, warm and cold.

With ``--replicas``: how many questions per second 1, 2 and 4 of its processes answer, instead.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.planner.questions import cluster, setups
from benchmarks.record import store

from frenzy_marp.core.planner import plan_job

JOBS = 200
TRIES = 3  # nothing of an answer is kept, so the best of three differs by other programs' noise
EXPECTED = {"warm_p95_ms": 10.0, "cold_ms": 50.0}
LEAST_GROWTH = 1.7  # of answers, from one replica to two, while each has a core
RESULT = Path(__file__).parent / "results" / "planner.json"

_COLD = """
import sys, time
from benchmarks.planner.questions import cluster, setups
from frenzy_marp.core.planner import plan_job
[job], kinds = setups(1, int(sys.argv[2])), cluster(int(sys.argv[1]))
started = time.process_time()
plan_job(job, kinds)
print(1000 * (time.process_time() - started))
"""


def main() -> int:
    """Return 0 when every figure is inside the expected range."""
    if "--replicas" in sys.argv[1:]:
        return _replicas()
    measured = {f"{kinds} kinds": {**_warm(kinds), **_cold(kinds)} for kinds in (3, 16)}
    inside = all(
        figures[name] < limit for figures in measured.values() for name, limit in EXPECTED.items()
    )
    result = {
        "jobs": JOBS,
        "tries": TRIES,
        **measured,
        "expected_below": EXPECTED,
        "inside": inside,
    }
    store(RESULT, result)
    print(json.dumps(result))
    return 0 if inside else 1


def _replicas() -> int:
    from benchmarks.planner.replicas import throughput  # noqa: PLC0415 - needs the servers

    found = asyncio.run(throughput())
    one, two = (found[name]["answers_per_core_s"] for name in ("1 replicas", "2 replicas"))
    growth = round(2 * two / one, 2)  # with a core each
    result = {**found, "growth_with_a_core_each": growth, "expected_at_least": LEAST_GROWTH}
    store(RESULT.with_name("replicas.json"), result)
    print(json.dumps(result))
    return 0 if growth >= LEAST_GROWTH else 1


def _warm(kinds: int) -> dict[str, float]:
    """Plan distinct models in a process that has planned others before."""
    present = cluster(kinds)
    for job in setups(20, seed=1):
        plan_job(job, present)
    milliseconds, plans = [], 0
    for job in setups(JOBS, seed=2):
        found, tries = 0, []
        for _ in range(TRIES):
            started = time.process_time()
            found = len(plan_job(job, present).plans)
            tries.append(1000 * (time.process_time() - started))
        milliseconds.append(min(tries))
        plans += found
    quantiles = statistics.quantiles(milliseconds, n=20)
    return {
        "plans_per_job": round(plans / JOBS, 1),
        "warm_p50_ms": round(statistics.median(milliseconds), 2),
        "warm_p95_ms": round(quantiles[18], 2),
        "warm_max_ms": round(max(milliseconds), 2),
    }


def _cold(kinds: int) -> dict[str, float]:
    """Plan once in each of several new processes, imports not counted; the median counts."""
    milliseconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", _COLD, str(kinds), str(seed)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in range(7)
    ]
    return {"cold_ms": round(statistics.median(milliseconds), 2)}


if __name__ == "__main__":
    sys.exit(main())
