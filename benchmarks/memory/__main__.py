"""``python -m benchmarks.memory [seed] [count]``: run, print, and check the expected range."""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.memory.configurations import draw
from benchmarks.memory.runs import compare
from benchmarks.record import store

RESULT = Path(__file__).parent / "results" / "memory.json"
EXPECTED = {"worst_error": 0.08, "median_error": 0.03}


def main(seed: int = 20261130, count: int = 36) -> int:
    """Return 0 when every configuration is inside the expected range."""
    errors: list[float] = []
    rows: list[dict[str, str | int | float]] = []
    published: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for index, configuration in enumerate(draw(seed, count)):
            result = compare(configuration, Path(folder) / str(index))
            errors.append(abs(result.error))
            rows.append(
                {
                    "run": result.name,
                    "predicted": result.predicted,
                    "observed": result.observed,
                    "error": round(result.error, 4),
                    "moment": result.moment,
                }
            )
            published.append(abs(result.published / result.observed - 1))
            print(
                f"{result.error:+8.2%}  predicted {result.predicted:>11,} observed "
                f"{result.observed:>11,}  {result.name}  [{result.moment}]",
                flush=True,
            )
    summary = {
        "seed": seed,
        "runs": count,
        "worst_error": round(max(errors), 4),
        "mean_error": round(statistics.fmean(errors), 4),
        "median_error": round(statistics.median(errors), 4),
        "published_formula_mean_error": round(statistics.fmean(published), 4),
        "expected": EXPECTED,
    }
    inside = all(summary[key] <= limit for key, limit in EXPECTED.items())
    store(RESULT, {**summary, "inside": inside, "rows": rows})
    print(json.dumps(summary))
    return 0 if inside else 1


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:3])))
