"""1, 2 and 4 replicas of gateway, MARP and scheduler: what they do a second, and what a kill costs.

Replicas on a machine with few and busy cores do not run side by side, so each figure per second
comes with the processor time behind it. Where replicas do not slow each other down the processor
time of a job stays the same, and two with a core each do twice as much.
"""

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.placement.measure import latencies
from benchmarks.placement.servers import ControlPlane, Services
from benchmarks.scaling.client import Client
from benchmarks.scaling.storm import all_up, living_nodes, spec, spread, until

from frenzy_shared.domain.job import JobState
from frenzy_shared.state.redis import RedisStore

COUNTS: Final = (1, 2, 4)
SERVICES: Final = ("gateway", "marp", "scheduler")
_ASKING: Final = 16  # submissions at a time
_PROJECTS: Final = 8
_DEVICES: Final = 128  # of each of three nodes: enough for every job to be placed
_WARM: Final = 24


async def burst(plane: ControlPlane, services: Services, *, jobs: int) -> dict[str, Any]:
    """Submit jobs as fast as answers come; return rates, and processor time by service."""
    store = await RedisStore.open(plane.valkey.url)
    client = Client(ports=tuple(services.ports.values()), token=plane.token)
    try:
        async with living_nodes(plane, _DEVICES):
            await until(lambda: all_up(store), "the nodes come up", 300)
            await _submit(client, range(100_000, 100_000 + _WARM))
            await until(lambda: _none_waits(store), "the first jobs are placed", 300)
            before = {name: services.cpu_s(name) for name in SERVICES}
            started = time.monotonic()
            names = await _submit(client, range(jobs))
            took = time.monotonic() - started
            await until(lambda: _none_waits(store), "every job is placed", 300)
            used = {name: services.cpu_s(name) - before[name] for name in SERVICES}
            steps = [await store.timeline(job) for job in names]
        return {
            "submissions_per_s": round(jobs / took, 1),
            "plans_per_s": _rate(steps, JobState.QUEUED),
            "placements_per_s": _rate(steps, JobState.RESERVED),
            "cpu_ms_per_job": {name: round(1000 * used[name] / jobs, 2) for name in SERVICES},
            "cores_used": {name: round(used[name] / took, 2) for name in SERVICES},
        }
    finally:
        await client.close()
        await store.close()


async def one_at_a_time(plane: ControlPlane, *, jobs: int) -> dict[str, float]:
    """Return how long it takes from a submission to `placed` on an idle cluster."""
    return spread((await latencies(plane, jobs + 5))[5:])


async def take_over(plane: ControlPlane, services: Services) -> dict[str, float]:
    """Kill a replica of each service; return the seconds until its work is done by another.

    Of the scheduler it is the leader. The clock of a gateway stops with a client's next answer,
    that of MARP when a new job has plans, that of the scheduler when one is placed.
    """
    store = await RedisStore.open(plane.valkey.url)
    client = Client(ports=tuple(services.ports.values()), token=plane.token)
    found: dict[str, float] = {}
    try:
        async with living_nodes(plane):
            await until(lambda: all_up(store), "the nodes come up", 300)
            for number, service in enumerate(SERVICES):
                victim = leader(plane) if service == "scheduler" else f"{service}-0"
                process = services.running[victim]
                process.send_signal(signal.SIGKILL)
                process.wait()
                started = time.monotonic()
                job, _, tries = await client.submit("killed", f"kill-{number}", spec(number))
                if service == "gateway":
                    found["tries_of_the_client"] = tries
                else:
                    state = JobState.RESERVED if service == "scheduler" else JobState.QUEUED
                    await until(lambda: _reached(store, job, state), f"{job} is {state}", 300)  # noqa: B023
                found[f"{service}_s"] = round(time.monotonic() - started, 2)
                services.start(service, int(victim.rpartition("-")[2]))
                services.wait_until_ready()
    finally:
        await client.close()
        await store.close()
    return found


async def _submit(client: Client, numbers: range) -> list[str]:
    waiting, names = iter(numbers), list[str]()

    async def keep_submitting() -> None:
        for number in waiting:
            wanted = {**spec(number), "resources": {"gpus": 1}}
            job, _, _ = await client.submit(f"p{number % _PROJECTS}", f"k{number}", wanted)
            names.append(job)

    await asyncio.gather(*(keep_submitting() for _ in range(_ASKING)))
    return names


async def _none_waits(store: RedisStore) -> bool:
    counts = await store.counts()
    return counts[JobState.SUBMITTED] + counts[JobState.QUEUED] == 0


async def _reached(store: RedisStore, job: str, state: JobState) -> bool:
    return any(step["state"] == state for step in await store.timeline(job))


def _rate(timelines: Sequence[Sequence[Any]], state: JobState) -> float:
    """Return how many jobs a second came to a state, between the first and the last."""
    times = [
        next(step["time_ms"] for step in steps if step["state"] == state) for steps in timelines
    ]
    return round(1000 * (len(times) - 1) / max(max(times) - min(times), 1), 1)


def leader(plane: ControlPlane) -> str:
    """Return which scheduler holds the lease."""
    with plane.valkey.client() as client:
        return str(client.get("{frenzy}:lease:control"))


def growth(one: dict[str, Any], other: dict[str, Any], count: int, service: str) -> float:
    """Return how much more ``count`` replicas do than one, with a core each."""
    alone, together = one["cpu_ms_per_job"][service], other["cpu_ms_per_job"][service]
    return round(float(count * alone / together), 2)
