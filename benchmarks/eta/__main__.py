"""``python -m benchmarks.eta``: run, print, store, and check the expected ranges."""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.eta.months import Lived, Month, Outcome, live
from benchmarks.eta.scores import (
    QueueLength,
    Score,
    ends_of_running,
    ends_of_waiting,
    score,
    starts,
)
from benchmarks.record import store

RESULTS = Path(__file__).parent / "results"
TUNED = (1, 2)  # seeds; the baseline is fitted on them
HELD_OUT = {"has": (21, 22), "frenzy": (11, 12)}
EXPECTED = {"before_p50": (0.40, 0.60), "before_p90": (0.85, 0.95)}
EXPECTED_CHANGE = -0.30  # pinball loss against the baseline, upper limit
SCENES = (
    Month(policy="has", workload="philly", per_hour=24, seed=0),
    Month(policy="has", workload="newtrace", per_hour=10, seed=0, every_h=4.0),
    Month(policy="frenzy", workload="philly", per_hour=45, seed=0, days=4, every_h=1.0),
)


def main() -> int:
    """Return 0 when every held-out figure is inside its expected range."""
    months = [
        Month(**{**asdict(scene), "seed": seed})
        for scene in SCENES
        for seed in (*TUNED, *HELD_OUT[scene.policy])
    ]
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        lived = list(pool.map(live, months))
    rows = [_row(scene, lived) for scene in SCENES]
    for policy, seeds in HELD_OUT.items():
        scenes = [row for row in rows if row["policy"] == policy]
        store(
            RESULTS / f"{policy}.json",
            {
                "expected": EXPECTED,
                "expected_pinball_change_below": EXPECTED_CHANGE,
                "inside": all(map(_inside, scenes)),
                "tuned_seeds": TUNED,
                "held_out_seeds": seeds,
                "scenes": scenes,
            },
        )
    for row in rows:
        _print(row)
    return 0 if all(map(_inside, rows)) else 1


def _row(scene: Month, lived: Sequence[Lived]) -> dict[str, Any]:
    same = [one for one in lived if asdict(one.month) | {"seed": 0} == asdict(scene)]
    baseline = QueueLength(_outcomes(same, TUNED))
    held_out = _outcomes(same, HELD_OUT[scene.policy])
    costs = [cost for one in same for cost in one.cpu_ms]
    return {
        "policy": scene.policy,
        "workload": scene.workload,
        "per_hour": scene.per_hour,
        "days_a_seed": scene.days,
        "questions": len(costs),
        "mean_queue": round(fmean(jobs for jobs, _ in costs), 1),
        "mean_futures": round(fmean(count for one in same for count in one.futures), 1),
        "cpu_ms": {
            "mean": round(fmean(ms for _, ms in costs)),
            "max": round(max(ms for _, ms in costs)),
        },
        "held_out": _scores(held_out, baseline),
        "tuned": _scores(_outcomes(same, TUNED), baseline),
    }


def _scores(outcomes: Sequence[Outcome], baseline: QueueLength) -> dict[str, Any]:
    kinds = {
        "start": score(outcomes, starts, baseline.start),
        "end_of_waiting": score(outcomes, ends_of_waiting, baseline.end),
        "end_of_running": score(outcomes, ends_of_running),
    }
    return {name: _rounded(found) for name, found in kinds.items() if found is not None}


def _rounded(found: Score) -> dict[str, Any]:
    values = asdict(found) | {"pinball_change": found.change}
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in values.items()
    }


def _outcomes(lived: Sequence[Lived], seeds: Sequence[int]) -> list[Outcome]:
    return [outcome for one in lived if one.month.seed in seeds for outcome in one.outcomes]


def _inside(row: dict[str, Any]) -> bool:
    return all(
        all(low <= found[name] <= high for name, (low, high) in EXPECTED.items())
        and (found["pinball_change"] is None or found["pinball_change"] <= EXPECTED_CHANGE)
        for found in row["held_out"].values()
    )


def _print(row: dict[str, Any]) -> None:
    print(
        f"{row['policy']} {row['workload']} {row['per_hour']}/h: {row['questions']} questions, "
        f"{row['mean_queue']} waiting, {row['mean_futures']} futures, "
        f"CPU {row['cpu_ms']['mean']} ms (max {row['cpu_ms']['max']})"
    )
    for seeds in ("tuned", "held_out"):
        for name, found in row[seeds].items():
            change = found["pinball_change"]
            rival = "" if change is None else f", pinball {change:+.0%} against the queue's length"
            print(
                f"  {seeds:8} {name:14} {found['count']:6} predictions, {found['known']:4.0%} "
                f"known, before p50 {found['before_p50']:.2f}, before p90 {found['before_p90']:.2f}"
                f"{rival}"
            )


if __name__ == "__main__":
    sys.exit(main())
