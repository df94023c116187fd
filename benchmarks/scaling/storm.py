"""One project submits thousands of jobs in seconds, while another submits a few.

Measured from outside: how long the other project's submissions take and its jobs wait for plans,
how long the queues take to empty, and whether every accepted job is there once and planned once.
"""

import asyncio
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks.placement.servers import ControlPlane, Services
from benchmarks.scaling.client import Client
from tests.support.scheduler import LiveAgent

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.job import JobState
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import Phase
from frenzy_shared.state.redis import RedisStore

STORMING, OTHER = "storm", "other"
KINDS: Final = ("NVIDIA GeForce RTX 2080 Ti", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3")
_EVERY_S: Final = 0.25  # between two submissions of the other project
_PATIENCE_S: Final = 600.0


def spec(number: int) -> dict[str, Any]:
    """Return one job of a sweep: no two are the same."""
    return {
        "model": "gpt2",
        "data": "node:/usr/share/dict/words",
        "sequence_length": 512,
        "global_batch_size": 32,
        "learning_rate": 1e-4 + number * 1e-8,
        "max_steps": 1000,
    }


class CalmAgent(LiveAgent):
    """Beats as often as an agent does, and prepares what it is told to: nothing ever starts."""

    limit = Phase.GO

    async def live(self) -> None:
        """Beat until it is over."""
        await self.bus.subscribe(subjects.desired(self.node), self._pushed)
        while not self.over:
            with contextlib.suppress(Unavailable):
                await self._follow(await self.beat(timeout_s=2.0))
            await asyncio.sleep(1.0)


@asynccontextmanager
async def living_nodes(plane: ControlPlane, devices: int = 8) -> AsyncIterator[NatsBus]:
    """Keep a node of each kind up."""
    bus = await NatsBus.connect(plane.nats.url, name="benchmark")
    agents = [CalmAgent(bus, f"node-{n}", devices, kind=kind) for n, kind in enumerate(KINDS)]
    living = [asyncio.create_task(agent.live()) for agent in agents]
    try:
        yield bus
    finally:
        for agent in agents:
            agent.over = True
        await asyncio.gather(*living)
        await bus.close()


async def storm(
    plane: ControlPlane,
    services: Services,
    *,
    jobs: int,
    seconds: float,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> dict[str, Any]:
    """Return what the storm did to both projects; ``meanwhile`` runs when it has begun."""
    store = await RedisStore.open(plane.valkey.url)
    client = Client(ports=tuple(services.ports.values()), token=plane.token)
    calm = Client(ports=tuple(services.ports.values()), token=plane.token)
    try:
        async with living_nodes(plane) as bus:
            await until(lambda: all_up(store), "the nodes come up", 300)
            for number in range(20):  # warm
                await calm.submit("warm", f"warm-{number}", spec(200_000 + number))
            before = _cpu_s(services)
            over, started = asyncio.Event(), time.monotonic()
            bystander = asyncio.create_task(_bystander(calm, over))
            coming = asyncio.gather(
                *(_one(client, number, number * seconds / jobs) for number in range(jobs))
            )
            if meanwhile is not None:
                await meanwhile()
            accepted = await coming
            accepted_s = time.monotonic() - started
            await until(lambda: _planned(store), "every job is planned", _PATIENCE_S)
            planned_s = time.monotonic() - started
            over.set()
            others = await bystander
            await until(lambda: _quiet(store, bus), "the queues are empty", _PATIENCE_S)
            quiet_s = time.monotonic() - started
            return {
                "jobs": jobs,
                "seconds": seconds,
                "cpu_ms_per_job": {
                    name: round(1000 * (used - before[name]) / (len(accepted) + len(others)), 1)
                    for name, used in _cpu_s(services).items()
                },
                "all_accepted_s": round(accepted_s, 1),
                "all_planned_s": round(planned_s, 1),
                "queues_empty_s": round(quiet_s, 1),
                "answers_to_the_storm": {str(k): v for k, v in sorted(client.statuses.items())},
                "answers_to_the_other": {str(k): v for k, v in sorted(calm.statuses.items())},
                "storm_first_try_ms": spread([s for _, s, tries in accepted if tries == 1]),
                "other_submit_ms": spread([s for _, s, _ in others]),
                "other_planned_ms": spread(await _planning_s(store, [j for j, _, _ in others])),
                "storm_planned_ms": spread(await _planning_s(store, [j for j, _, _ in accepted])),
                **await _checked(store, bus, [job for job, _, _ in (*accepted, *others)]),
            }
    finally:
        await client.close()
        await calm.close()
        await store.close()


def _cpu_s(services: Services) -> dict[str, float]:
    return {name: services.cpu_s(name) for name in ("gateway", "marp", "scheduler")}


async def _one(client: Client, number: int, after_s: float) -> tuple[str, float, int]:
    await asyncio.sleep(after_s)
    job, answer, tries = await client.submit(STORMING, f"storm-{number}", spec(number))
    return job, answer.seconds, tries


async def _bystander(client: Client, over: asyncio.Event) -> list[tuple[str, float, int]]:
    """Submit now and then; the time counts from the first try."""
    done, number, began = [], 0, time.monotonic()
    while not over.is_set():
        started = time.perf_counter()
        job, _, tries = await client.submit(OTHER, f"other-{number}", spec(100_000 + number))
        done.append((job, time.perf_counter() - started, tries))
        number += 1
        await asyncio.sleep(max(0.0, began + number * _EVERY_S - time.monotonic()))
    return done


async def _planning_s(store: RedisStore, jobs: Sequence[str]) -> list[float]:
    """Return how long jobs waited for plans, by the store's clock."""
    found = []
    for job in jobs:
        steps = await store.timeline(job)
        planned = next(step["time_ms"] for step in steps if step["state"] != "SUBMITTED")
        found.append((planned - steps[0]["time_ms"]) / 1000)
    return found


async def _checked(store: RedisStore, bus: NatsBus, jobs: Sequence[str]) -> dict[str, int]:
    """Count what is lost or doubled, among the jobs and among their events."""
    stored: Counter[str] = Counter()
    for project in (STORMING, OTHER):
        token = ""
        while True:
            page = await store.list_jobs(
                project=ProjectName(project),
                states=frozenset(),
                page_size=200,
                page_token=token,
                labels={},
            )
            stored.update(record.id for record in page.jobs)
            if not (token := page.next_token):
                break
    events = {kind: await _events(bus, kind) for kind in ("submitted", "planned")}
    return {
        "lost": len(set(jobs) - set(stored)),
        "doubled": len(stored) - len(set(jobs)) + sum(n > 1 for n in Counter(jobs).values()),
        "unannounced": sum(job not in found for found in events.values() for job in jobs),
        "announced_twice": sum(n > 1 for found in events.values() for n in found.values()),
    }


async def _events(bus: NatsBus, kind: str) -> Counter[str]:
    last = await bus.last_sequence(subjects.EVENTS_STREAM, subjects.job_events_of_kind(kind))
    found: Counter[str] = Counter()
    stored = bus.read(subjects.EVENTS_STREAM, subjects.job_events_of_kind(kind), after_sequence=0)
    async for message in stored:
        if message is not None:
            found[message.subject.rpartition(".")[2]] += 1
            if message.sequence >= last:
                break
    await stored.aclose()
    return found


async def all_up(store: RedisStore) -> bool:
    """Tell whether every node can get work."""
    nodes = (await store.cluster()).nodes
    return len(nodes) == len(KINDS) and all(node.state == "UP" for node in nodes)


async def _planned(store: RedisStore) -> bool:
    return (await store.counts())[JobState.SUBMITTED] == 0


async def _quiet(store: RedisStore, bus: NatsBus) -> bool:
    """Tell whether every event is published and was taken by those who work on it."""
    if (await store.health()).outbox_lag:
        return False
    states = [
        await bus.durable_state(subjects.EVENTS_STREAM, durable)
        for durable in (subjects.MARP_DURABLE, subjects.WAKE_DURABLE)
    ]
    return all(state is not None and not state.pending for state in states)


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, within_s: float, *, every_s: float = 0.2
) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {within_s:.0f} s")
        await asyncio.sleep(every_s)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return quantiles in milliseconds."""
    values = sorted(1000 * value for value in seconds)
    if len(values) < 2:
        return {"count": len(values)}
    return {
        "count": len(values),
        "p50": round(statistics.median(values), 1),
        "p99": round(statistics.quantiles(values, n=100)[98], 1),
        "max": round(values[-1], 1),
    }
