"""More than the services can do at once, and replicas that die meanwhile."""

import asyncio
import signal

import pytest
from benchmarks.placement.servers import control_plane
from benchmarks.scaling.replicas import SERVICES, leader
from benchmarks.scaling.storm import all_up, living_nodes, spec, storm, until

from frenzy import AsyncClient
from frenzy.exchange import Retry
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.state.redis import RedisStore

JOBS = 300
ONE_RETRY = Retry(attempts=2)


@pytest.fixture
def replicas(tmp_path):
    """Two of each service."""
    with control_plane(tmp_path) as plane:
        asyncio.run(make_streams(plane.nats.url))
        with plane.services(gateways=2, marps=2, schedulers=2) as services:
            yield plane, services


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_storm_of_one_project_does_not_reach_another_whatever_is_killed(replicas):
    plane, services = replicas

    async def kill_one_of_each():
        for service in SERVICES:
            await asyncio.sleep(1)
            await kill(plane, services, service)

    found = asyncio.run(storm(plane, services, jobs=JOBS, seconds=0.5, meanwhile=kill_one_of_each))
    assert found["lost"] == found["doubled"] == 0
    assert found["unannounced"] == found["announced_twice"] == 0
    assert (
        found["answers_to_the_storm"]["201"] + found["answers_to_the_storm"].get("200", 0) == JOBS
    )
    assert found["answers_to_the_storm"]["429"] > 0
    assert set(found["answers_to_the_other"]) <= {"0", "200", "201"}  # never 429 or 503
    assert found["other_planned_ms"]["p50"] <= found["storm_planned_ms"]["p50"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_one_retry_is_all_that_a_client_sees_of_a_killed_replica(replicas):
    plane, services = replicas
    urls = ",".join(f"http://127.0.0.1:{port}" for port in services.ports.values())
    asyncio.run(submit_through_kills(plane, services, urls))


async def submit_through_kills(plane, services, urls):
    store = await RedisStore.open(plane.valkey.url)
    jobs, over = [], asyncio.Event()

    async def keep_submitting(client):
        while not over.is_set():  # an error ends it, and the test
            jobs.append((await client.submit(spec(len(jobs)), project="p")).id)
            await client.job(jobs[-1])
            await asyncio.sleep(0.1)

    async with (
        living_nodes(plane) as bus,
        AsyncClient(urls, plane.token, retry=ONE_RETRY) as client,
    ):
        await until(lambda: all_up(store), "the nodes come up", 300)
        submitting = asyncio.ensure_future(keep_submitting(client))
        for service in SERVICES:
            before = len(jobs)
            await kill(plane, services, service)
            await until(lambda: grown(jobs, before + 5, submitting), "submissions go on", 300)  # noqa: B023
        over.set()
        await submitting
        await until(lambda: none_waits_for_plans(store), "every job is planned", 300)
        stored = await store.list_jobs(
            project="p", states=frozenset(), page_size=200, page_token="", labels={}
        )
        assert sorted(record.id for record in stored.jobs) == sorted(jobs)
        assert (await bus.durable_state(subjects.EVENTS_STREAM, subjects.MARP_DURABLE)) is not None
    await store.close()


async def grown(jobs, least, submitting):
    if submitting.done():
        submitting.result()
    return len(jobs) >= least


async def none_waits_for_plans(store):
    return (await store.counts())[JobState.SUBMITTED] == 0


async def kill(plane, services, service):
    """Kill a replica, of the scheduler the leader, and start it again as a supervisor does."""
    name = leader(plane) if service == "scheduler" else f"{service}-0"
    process = services.running[name]
    process.send_signal(signal.SIGKILL)
    process.wait()
    await asyncio.sleep(0.5)
    services.start(service, int(name.rpartition("-")[2]))


async def make_streams(url):
    bus = await NatsBus.connect(url, name="test")
    await bus.ensure_streams()
    await bus.close()
