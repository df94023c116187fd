"""1, 2 and 4 replicas of gateway, MARP and scheduler: what they do a second, and what a kill costs.

Replicas on a machine with few and busy cores do not run side by side, so each figure per second
comes with the processor time behind it. Where replicas do not slow each other down the processor
time of a job stays the same, and two with a core each do twice as much.
"""

import asyncio
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from benchmarks.placement.servers import ControlPlane, Services
from benchmarks.scaling.client import Client
from benchmarks.scaling.storm import all_up, living_nodes, spec, spread, until

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.state.redis import RedisStore

COUNTS: Final = (1, 2, 4)
SERVICES: Final = ("gateway", "marp", "scheduler")
_ASKING: Final = 16  # submissions at a time
_PROJECTS: Final = 8
_DEVICES: Final = 128  # of each of three nodes: enough for every job to be placed
_WARM: Final = 24


async def measured(
    plane: ControlPlane, services: Services, *, jobs: int, one_by_one: int
) -> dict[str, Any]:
    """Submit many jobs at once, then one at a time, then kill replicas where there are others."""
    store = await RedisStore.open(plane.valkey.url)
    client = Client(ports=tuple(services.ports.values()), token=plane.token)
    try:
        async with living_nodes(plane, _DEVICES) as bus:
            await until(lambda: all_up(store), "the nodes come up", 300)
            await _submit(client, range(100_000, 100_000 + _WARM))
            await until(lambda: _none_waits(store), "the first jobs are placed", 300)
            found = await _burst(services, client, store, jobs)
            found["submit_to_placed_ms"] = spread(await _one_by_one(bus, client, one_by_one))
            if len(services.ports) > 1:
                found["take_over"] = await _take_over(plane, services, client, store)
            return found
    finally:
        await client.close()
        await store.close()


async def _burst(
    services: Services, client: Client, store: RedisStore, jobs: int
) -> dict[str, Any]:
    """Submit jobs as fast as answers come; return rates, and processor time by service."""
    before = {name: services.cpu_s(name) for name in SERVICES}
    started = time.monotonic()
    names = await _submit(client, range(jobs))
    took = time.monotonic() - started
    await until(lambda: _none_waits(store), "every job is placed", 600)
    lasted = time.monotonic() - started
    used = {name: services.cpu_s(name) - before[name] for name in SERVICES}
    steps = [await store.timeline(job) for job in names]
    return {
        "submissions_per_s": round(jobs / took, 1),
        "plans_per_s": _rate(steps, JobState.QUEUED),
        "placements_per_s": _rate(steps, JobState.RESERVED),
        "cpu_ms_per_job": {name: round(1000 * used[name] / jobs, 2) for name in SERVICES},
        "cores_used": {name: round(used[name] / lasted, 2) for name in SERVICES},
    }


async def _one_by_one(bus: NatsBus, client: Client, jobs: int) -> list[float]:
    """Return seconds from sending a submission to receiving `placed` from the stream, per job."""
    placed: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    kind = subjects.job_events_of_kind("placed")
    last = await bus.last_sequence(subjects.EVENTS_STREAM)

    async def read() -> None:
        async for message in bus.read(subjects.EVENTS_STREAM, kind, after_sequence=last):
            if message is not None:
                placed.put_nowait((message.subject.rpartition(".")[2], time.perf_counter()))

    reader, seconds = asyncio.create_task(read()), []
    try:
        for number in range(jobs):
            sent = time.perf_counter()
            job, _, _ = await client.submit("calm", f"one-{number}", _one_device(number))
            name = ""
            while name != job:  # others' events may still be on their way
                name, received = await asyncio.wait_for(placed.get(), 300)
            seconds.append(received - sent)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    return seconds


async def _take_over(
    plane: ControlPlane, services: Services, client: Client, store: RedisStore
) -> dict[str, float]:
    """Kill a replica of each service; return the seconds until its work is done by another.

    Of the scheduler it is the leader. The clock of a gateway stops with a client's next answer,
    that of MARP when a new job has plans, that of the scheduler when one is placed.
    """
    found: dict[str, float] = {}
    for number, service in enumerate(SERVICES):
        victim = leader(plane) if service == "scheduler" else f"{service}-0"
        process = services.running[victim]
        process.send_signal(signal.SIGKILL)
        process.wait()
        started = time.monotonic()
        job, _, tries = await client.submit("killed", f"kill-{number}", _one_device(number))
        if service == "gateway":
            found["tries_of_the_client"] = tries
        else:
            state = JobState.RESERVED if service == "scheduler" else JobState.QUEUED
            reached = partial(_reached, store, job, state)
            await until(reached, f"{job} is {state}", 300, every_s=0.02)
        found[f"{service}_s"] = round(time.monotonic() - started, 2)
        services.start(service, int(victim.rpartition("-")[2]))
        services.wait_until_ready()
    return found


async def _submit(client: Client, numbers: range) -> list[str]:
    waiting, names = iter(numbers), list[str]()

    async def keep_submitting() -> None:
        for number in waiting:
            project = f"p{number % _PROJECTS}"
            job, _, _ = await client.submit(project, f"k{number}", _one_device(number))
            names.append(job)

    await asyncio.gather(*(keep_submitting() for _ in range(_ASKING)))
    return names


def _one_device(number: int) -> dict[str, Any]:
    return {**spec(number), "resources": {"gpus": 1}}


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
