"""Does anything grow for ever? ``python -m benchmarks.soak [--hours H] [--jobs N] [--seed N]``.

The first 24 hours fill what is kept for 24 hours; what comes later must not need more.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.record import store
from benchmarks.soak.measures import growth, measure
from benchmarks.soak.world import world

RESULTS: Final = Path(__file__).parent / "results"
MOST_GROWTH: Final = 0.05
_WAVE_S: Final = 3600.0
_EXPIRY_WAVES: Final = 2  # rarely: it reads every key that the server forgets by itself


def main() -> int:
    """Live, look every two hours, and judge; 0 when nothing grew after the first day."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--kept-jobs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="frenzy-soak-") as folder:
        result = asyncio.run(
            live(
                Path(folder),
                chosen.hours,
                chosen.jobs,
                chosen.kept_jobs,
                chosen.seed,
                report=_report,
            )
        )
    for name, share in result["growth"].items():
        print(f"{share:+7.1%}  {name}")
    return 0 if result["inside"] else 1


async def live(
    folder: Path,
    hours: int,
    jobs: int,
    kept_jobs: int,
    seed: int,
    *,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Live for so many hours with so many jobs; return what was measured and how it grew.

    ``report`` gets the same after every look: what a run that is broken off has seen.
    """
    waves = round(hours * 3600 / _WAVE_S)
    begun, done = time.monotonic(), 0
    looks: list[dict[str, Any]] = []
    result: dict[str, Any] = {"hours": hours, "jobs": jobs, "kept_jobs": kept_jobs, "seed": seed}
    async with world(folder, seed, kept_jobs=kept_jobs) as living:
        for number in range(1, waves + 1):
            due = round(jobs * number / waves)
            await living.wave(due - done, _WAVE_S)
            done = due
            if number % _EXPIRY_WAVES == 0 or number == waves:
                living.expire(_EXPIRY_WAVES * _WAVE_S)
                gc.collect()
                looks.append({"hour": number * _WAVE_S / 3600, **await measure(living)})
                counts = {str(s): n for s, n in (await living.store.counts()).items()}
                result |= {
                    "lived_jobs": done,
                    "wall_s": round(time.monotonic() - begun),
                    "cpu_s": round(time.process_time()),
                    "archived": living.archive.count,
                    "counts": counts,
                    **_judged(done, jobs, living.archive.count, counts, looks),
                }
                report(result)
    return result


def _judged(
    done: int, jobs: int, archived: int, counts: dict[str, int], looks: list[dict[str, Any]]
) -> dict[str, Any]:
    grown = growth(looks, after_hour=24)
    whole = done == jobs == archived + sum(counts.values())
    return {
        "growth": grown,
        "most_growth": MOST_GROWTH,
        "inside": whole and all(share <= MOST_GROWTH for share in grown.values()),
        "looks": looks,
    }


def _report(result: dict[str, Any]) -> None:
    hour = result["looks"][-1]["hour"]
    print(f"{hour:5.1f} h {result['lived_jobs']:6d} jobs {result['wall_s']:6.0f} s", flush=True)
    store(RESULTS / "soak.json", result)


if __name__ == "__main__":
    sys.exit(main())
