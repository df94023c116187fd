"""The SDK against the real gateway, store and bus, started as `frenzy up` starts them."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

import frenzy.client
from frenzy import AsyncClient, Client
from frenzy.errors import (
    IdempotencyConflict,
    InvalidSpec,
    NotFound,
    Unauthenticated,
)
from frenzy.exchange import Retry
from frenzy.local import credentials, stack
from frenzy.local.child import Child
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.preparing import create_streams, load_functions
from frenzy_shared.messages.envelope import short_kind

SPEC = {"model": "gpt2-tiny", "data": "node:/data/text", "global_batch_size": 8}


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[tuple[str, str]]:
    """Yield (url, token) of servers, scheduler and gateway; no MARP and no agent."""
    layout = Layout(tmp_path_factory.mktemp("up"))
    layout.create()
    secret = credentials.load_or_make(layout)
    plan = stack.build(layout, Options(port=0), secret)
    running = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            runner.run(_start_all(running, plan))
            yield plan.url, secret.admin_token
        finally:
            runner.run(running.aclose())


async def _start_all(running: AsyncExitStack, plan: stack.Stack) -> None:
    for spec in plan.servers:
        await _start(running, Child(spec, lambda: None))
    await create_streams(plan.nats)
    await load_functions(plan.redis_url)
    for spec in plan.services:
        if spec.name != "marp":
            await _start(running, Child(spec, lambda: None))


async def _start(running: AsyncExitStack, child: Child) -> None:
    running.push_async_callback(child.stop)
    await child.start()


@pytest.fixture
def client(server):
    with Client(*server, retry=Retry(attempts=2)) as client:
        yield client


def test_a_jobs_life_without_marp(client, tmp_path):
    (tmp_path / "a.txt").write_text("text\n" * 100)
    spec = {**SPEC, "data": str(tmp_path / "a.txt"), "name": "first", "labels": {"team": "x"}}
    job = client.submit(spec)
    assert job.state == "SUBMITTED"
    assert job.spec()["data"].startswith("blob:sha256:")
    assert [other.id for other in client.jobs(labels={"team": "x"})] == [job.id]
    assert not job.plans().feasible
    assert job.explain().state == "SUBMITTED"
    assert job.cancel().state == "CANCELLED"
    assert job.cancel().state == "CANCELLED"
    assert job.wait(5.0).reason == "ByUser"
    assert [short_kind(event.type) for event in job.events()] == ["submitted", "cancelled"]
    assert list(job.logs(follow=True)) == []
    assert list(job.logs()) == []
    assert [entry.state for entry in job.timeline()] == ["SUBMITTED", "CANCELLED"]


def test_one_key_is_one_job(server):
    async def submit_all():
        async with AsyncClient(*server) as client:
            jobs = [await client.submit(SPEC, idempotency_key="one") for _ in range(3)]
            assert len({job.id for job in jobs}) == 1
            with pytest.raises(IdempotencyConflict):
                await client.submit({**SPEC, "seed": 1}, idempotency_key="one")

    asyncio.run(submit_all())


def test_many_pages_are_one_list(server, monkeypatch):
    monkeypatch.setattr(frenzy.client, "_PAGE_SIZE", 5)

    async def submit_and_list():
        async with AsyncClient(*server) as client:
            made = {(await client.submit(SPEC, project="paging")).id for _ in range(12)}
            return made, [job.id async for job in client.jobs(project="paging")]

    made, listed = asyncio.run(submit_and_list())
    assert len(listed) == 12
    assert set(listed) == made


def test_errors_are_typed(server, client):
    with pytest.raises(NotFound):
        client.job("nosuchjob")
    with pytest.raises(InvalidSpec, match="reserved"):
        client.submit(SPEC, project="cluster")
    url, _ = server
    for token in ("frz_" + "0" * 12 + "_" + "0" * 64, "nonsense"):
        with Client(url, token) as other, pytest.raises(Unauthenticated):
            list(other.jobs())
