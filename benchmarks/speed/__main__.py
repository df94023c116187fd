"""``python -m benchmarks.speed [--profiles FILE]``: score the speed model on measured layers.

FILE is Sailor's step_times.csv, or FRENZY_SPEED_PROFILES names it. It is not part of the project;
without it nothing is measured and the benchmark says so.
"""

import argparse
import os
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.record import store
from benchmarks.speed.profiles import Row, read
from benchmarks.speed.published import compared
from benchmarks.speed.scoring import errors_by, fit, left_out, ranks, updates

from frenzy_marp.core.speed_rates import PRIORS
from frenzy_shared.errors import FrenzyError

EXPECTED = {"median_error_left_out": 0.15, "rank_correlation": 0.9}
RESULT = Path(__file__).parent / "results" / "speed.json"
_MISSING = (
    "no profiles: give --profiles FILE, or set FRENZY_SPEED_PROFILES to a step_times.csv; "
    "README.md says where it comes from"
)


def main() -> int:
    """Return 0 when both figures are inside their range, 2 when the file cannot be read."""
    parser = argparse.ArgumentParser(prog="benchmarks.speed")
    parser.add_argument("--profiles", type=Path, metavar="FILE")
    parser.add_argument("--save", action="store_true", help="write results/")
    options = parser.parse_args()
    named = os.environ.get("FRENZY_SPEED_PROFILES")
    path = options.profiles or (Path(named) if named else None)
    if path is None:
        print(f"skipped: {_MISSING}")
        return 0
    try:
        rows = read(path)
    except FrenzyError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    result = score(rows)
    _print(result)
    if options.save:
        store(RESULT, result)
    return 0 if result["inside"] else 1


def score(rows: list[Row]) -> dict[str, Any]:
    """Return all figures: of one GPU, of tensor-parallel groups, and of both together."""
    alone = [row for row in rows if row.tensor == 1]
    errors = {"one GPU": left_out(alone), "all": left_out(rows)}
    correlations = ranks(rows, PRIORS)
    median = {name: _median_of(found) for name, found in errors.items()}
    correlation = round(statistics.median(correlations.values()), 3)
    return {
        "rows": len(rows),
        "priors": asdict(PRIORS),
        "fitted": asdict(fit(rows)),
        "left_out": {
            name: {card: _share(found) for card, found in by_card.items()}
            for name, by_card in errors.items()
        },
        "median_error_left_out": median,
        "rank_correlation": correlation,
        "rank_correlation_by_model_and_batch": correlations,
        "by_model_and_card": errors_by(alone, PRIORS, lambda row: f"{row.model} on {row.card}"),
        "by_tensor_degree": errors_by(rows, PRIORS, lambda row: f"tensor {row.tensor}"),
        "updates": updates(alone),
        "published": compared(),
        "expected": EXPECTED,
        "inside": median["one GPU"] <= EXPECTED["median_error_left_out"]
        and correlation >= EXPECTED["rank_correlation"],
    }


def _median_of(errors: dict[str, list[float]]) -> float:
    return round(statistics.median(error for found in errors.values() for error in found), 3)


def _share(errors: list[float]) -> dict[str, float]:
    return {"rows": len(errors), "median_error": round(statistics.median(errors), 3)}


def _print(result: dict[str, Any]) -> None:
    for name in ("one GPU", "all"):
        print(f"{name}: each card left out, median error {result['median_error_left_out'][name]}")
        for card, found in result["left_out"][name].items():
            print(f"  {card:10} {found['rows']:4} rows  median error {found['median_error']}")
    print(f"rank correlation within (model, batch): median {result['rank_correlation']}")
    for name, value in result["rank_correlation_by_model_and_batch"].items():
        print(f"  {name:20} {value}")
    for point in result["published"]:
        print(
            f"{point['model']:>5} on {point['gpu']}: MFU {point['predicted_mfu']} predicted, "
            f"{point['published_mfu']} published with fused kernels"
        )
    for title in ("by_model_and_card", "by_tensor_degree", "updates"):
        print(title.replace("_", " "))
        for name, found in result[title].items():
            print(f"  {name:28} predicted / measured {found['median_ratio']}")


if __name__ == "__main__":
    sys.exit(main())
