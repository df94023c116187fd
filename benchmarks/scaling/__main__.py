"""``python -m benchmarks.scaling [storm | replicas]``: both without a word."""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.placement.servers import ControlPlane, Services, control_plane
from benchmarks.record import store
from benchmarks.scaling.replicas import COUNTS, SERVICES, growth, measured
from benchmarks.scaling.storm import storm

from frenzy_shared.bus.nats import NatsBus

JOBS, SECONDS = 5000, 10.0
BURST, ONE_BY_ONE = 200, 40
OTHER_P99_MS = 1000.0
LEAST_GROWTH = 1.7  # of plans, from one MARP to two with a core each
RESULTS = Path(__file__).parent / "results"


def main(*what: str) -> int:
    """Return 0 when every figure is inside the expected range."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    inside = True
    if not what or "storm" in what:
        inside &= _storm()
    if not what or "replicas" in what:
        inside &= _replicas()
    return 0 if inside else 1


def _storm() -> bool:
    found = _with_replicas(
        1, lambda plane, services: storm(plane, services, jobs=JOBS, seconds=SECONDS)
    )
    wrong = sum(found[name] for name in ("lost", "doubled", "unannounced", "announced_twice"))
    inside = found["other_submit_ms"]["p99"] < OTHER_P99_MS and not wrong
    expected = {"other_submit_p99_ms_below": OTHER_P99_MS, "lost_or_doubled": 0}
    _keep("storm.json", {**found, "expected": expected, "inside": inside})
    return inside


def _replicas() -> bool:
    found: dict[str, Any] = {}
    for count in COUNTS:
        # Projects of a benchmark are not to be held back.
        found[f"{count} replicas"] = _with_replicas(
            count, _measured, submit_rate="0", submit_slots="64"
        )
    one = found["1 replicas"]
    grown = {
        f"{count} replicas": {
            name: growth(one, found[f"{count} replicas"], count, name) for name in SERVICES
        }
        for count in COUNTS[1:]
    }
    inside = grown["2 replicas"]["marp"] >= LEAST_GROWTH
    _keep(
        "replicas.json",
        {
            "jobs": BURST,
            **found,
            "growth_with_a_core_each": grown,
            "expected": {"growth_of_plans_at_least": LEAST_GROWTH},
            "inside": inside,
        },
    )
    return inside


async def _measured(plane: ControlPlane, services: Services) -> dict[str, Any]:
    return await measured(plane, services, jobs=BURST, one_by_one=ONE_BY_ONE)


def _with_replicas(
    count: int,
    measure: Callable[[ControlPlane, Services], Awaitable[dict[str, Any]]],
    **settings: str,
) -> dict[str, Any]:
    """Run a measurement on servers of its own."""
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder)) as plane:
        asyncio.run(_create_streams(plane.nats.url))
        # What is placed stays prepared: nothing is stopped for it while others are measured.
        forever = {"prepare_timeout_s": "36000", "go_timeout_s": "36000"}
        replicas = plane.services(
            gateways=count, marps=count, schedulers=count, **forever, **settings
        )
        with replicas as services:
            return asyncio.run(_call(measure, plane, services))


async def _call(
    measure: Callable[[ControlPlane, Services], Awaitable[dict[str, Any]]],
    plane: ControlPlane,
    services: Services,
) -> dict[str, Any]:
    return await measure(plane, services)


async def _create_streams(url: str) -> None:
    bus = await NatsBus.connect(url, name="benchmark")
    await bus.ensure_streams()
    await bus.close()


def _keep(name: str, result: dict[str, Any]) -> None:
    store(RESULTS / name, result)
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
