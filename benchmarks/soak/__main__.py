"""Does anything grow for ever? ``python -m benchmarks.soak [--hours H] [--jobs N] [--seed N]``.

The first 24 hours fill what is kept for 24 hours; what comes later must not need more.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
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
    """Live, measure once an hour, and judge; 0 when nothing grew after the first day."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--kept-jobs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="frenzy-soak-") as folder:
        result = asyncio.run(
            live(Path(folder), chosen.hours, chosen.jobs, chosen.kept_jobs, chosen.seed)
        )
    store(RESULTS / "soak.json", result)
    for name, share in result["growth"].items():
        print(f"{share:+7.1%}  {name}")
    return 0 if result["inside"] else 1


async def live(folder: Path, hours: int, jobs: int, kept_jobs: int, seed: int) -> dict[str, Any]:
    """Live for so many hours with so many jobs; return what was measured and how it grew."""
    waves = round(hours * 3600 / _WAVE_S)
    begun, done = time.monotonic(), 0
    hourly: list[dict[str, Any]] = []
    async with world(folder, seed, kept_jobs=kept_jobs) as living:
        for number in range(1, waves + 1):
            due = round(jobs * number / waves)
            await living.wave(due - done, _WAVE_S)
            done = due
            if number % _EXPIRY_WAVES == 0:
                living.expire(_EXPIRY_WAVES * _WAVE_S)
                gc.collect()
                hourly.append({"hour": number * _WAVE_S / 3600, **await measure(living)})
                print(
                    f"{hourly[-1]['hour']:5.1f} h {done:6d} jobs {time.monotonic() - begun:6.0f} s",
                    flush=True,
                )
        counts = {str(state): count for state, count in (await living.store.counts()).items()}
        archived = living.archive.count
    grown = growth(hourly, after_hour=24)
    return {
        "hours": hours,
        "jobs": jobs,
        "kept_jobs": kept_jobs,
        "seed": seed,
        "wall_s": round(time.monotonic() - begun),
        "archived": archived,
        "counts": counts,
        "growth": grown,
        "most_growth": MOST_GROWTH,
        "inside": archived + sum(counts.values()) == jobs
        and all(share <= MOST_GROWTH for share in grown.values()),
        "hourly": hourly,
    }


if __name__ == "__main__":
    sys.exit(main())
