"""``python -m benchmarks.placement [jobs]``: run, print, store, and check the expected range."""

import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.placement.measure import latencies
from benchmarks.placement.servers import control_plane
from benchmarks.record import store

from frenzy_shared.bus.nats import NatsBus

EXPECTED = {"p50_ms": 100.0, "p99_ms": 300.0}
WARM_UP = 5
RESULTS = Path(__file__).parent / "results"


def main(jobs: int = 100) -> int:
    """Return 0 when both servers are durable and the figures are inside the expected range."""
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder)) as plane:
        asyncio.run(_create_streams(plane.nats.url))
        with plane.services():
            seconds = asyncio.run(latencies(plane, WARM_UP + jobs))[WARM_UP:]
            durability = plane.durability()
    milliseconds = sorted(1000 * value for value in seconds)
    figures = {
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p99_ms": round(statistics.quantiles(milliseconds, n=100)[98], 1),
        "min_ms": round(milliseconds[0], 1),
        "max_ms": round(milliseconds[-1], 1),
    }
    synced = (
        durability["valkey"]["appendonly"] == "yes"
        and durability["valkey"]["appendfsync"] == "always"
        and durability["jetstream"].get("sync_always") is True
    )
    inside = synced and all(figures[name] < limit for name, limit in EXPECTED.items())
    result = {
        "jobs": jobs,
        **figures,
        "expected_below": EXPECTED,
        "inside": inside,
        "durable": synced,
        "durability": durability,
    }
    store(RESULTS / "placement.json", result)
    print(json.dumps(result))
    return 0 if inside else 1


async def _create_streams(url: str) -> None:
    bus = await NatsBus.connect(url, name="benchmark")
    await bus.ensure_streams()
    await bus.close()


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:2])))
