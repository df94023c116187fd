"""``python -m benchmarks.engine [--seed N] [--cells N] [--processes N] [--judge]``.

Traces are kept in ``results/traces-<seed>.jsonl``: a run goes on where an earlier one stopped, and
after a change of the memory model only the planner is asked again.
"""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks.engine.cells import draw
from benchmarks.engine.compare import judged, key, traces
from benchmarks.record import store

RESULTS = Path(__file__).parent / "results"
EXPECTED = {"median_error": 0.01, "worst_error": 0.05}


def main() -> int:
    """Trace what is missing, judge all, sum up; 0 when all is inside the expected range."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--cells", type=int, help="only the first so many")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--judge", action="store_true", help="trace nothing more")
    chosen = parser.parse_args()
    cells = {cell.name: cell for cell in draw(chosen.seed)[: chosen.cells]}
    file = RESULTS / f"traces-{chosen.seed}.jsonl"
    known = {trace["cell"]: trace for trace in _read(file)}
    current = {
        name: known[name]
        for name, cell in cells.items()
        if name in known and known[name]["key"] == key(cell)
    }
    missing = [] if chosen.judge else [cell for name, cell in cells.items() if name not in current]
    file.parent.mkdir(exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        for trace in traces(missing, chosen.processes):
            current[trace["cell"]] = trace
            print(_line(judged(cells[trace["cell"]], trace)), flush=True)
            if "failed" not in trace:
                out.write(json.dumps(trace) + "\n")
                out.flush()
    summary = summed_up([judged(cells[name], trace) for name, trace in current.items()])
    inside = not summary["failed"] and all(
        summary[name] <= limit for name, limit in EXPECTED.items()
    )
    store(RESULTS / "engine.json", {**summary, "expected": EXPECTED, "inside": inside})
    print(json.dumps(summary, indent=2))
    return 0 if inside else 1


def summed_up(rows: list[dict]) -> dict:
    """Return the errors of all cells, and the worst by each of their dimensions."""
    good = [row for row in rows if "error" in row]
    errors = sorted(abs(row["error"]) for row in good)
    groups = defaultdict(list)
    for row in good:
        for word in row["cell"].split():
            groups[word].append(abs(row["error"]))
    worst = sorted(good, key=lambda row: -abs(row["error"]))[:8]
    return {
        "cells": len(good),
        "median_error": statistics.median(errors),
        "mean_error": round(statistics.fmean(errors), 5),
        "p95_error": errors[int(0.95 * (len(errors) - 1))],
        "worst_error": errors[-1],
        "more_than_1pct_below": sum(row["error"] < -0.01 for row in good),
        "worst": [_line(row) for row in worst],
        "failed": [_line(row) for row in rows if "error" not in row],
        "worst_by": {
            name: f"{max(group):.2%} of {len(group)}" for name, group in sorted(groups.items())
        },
    }


def _read(file: Path) -> list[dict]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _line(row: dict) -> str:
    if "failed" in row:
        return f"FAILED {row['cell']}: {row['failed']}"
    return (
        f"{row['error']:+.2%} predicted {row['predicted']:,} traced {row['traced']:,} "
        f"{row['cell']} [{row['moment']}]"
    )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nobody waits for a process group that does not exist
