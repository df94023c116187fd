"""A gang's launch where one of its nodes is slow, refuses, or does not hear."""

from collections.abc import AsyncIterator

import pytest
from tests.support.scheduler import Bench
from tests.support.scheduling import plan

from frenzy_shared.domain.job import JobState, StopReason
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages.v1 import EvidenceKind, Phase

BOTH = ("n1", "n2")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as made:
        for name in BOTH:
            await made.node(name)
        await made.queue("j1", plan("p1", "rtx", 2))
        await made.turn()
        yield made


async def obey(bench: Bench, name: str, **how: object) -> None:
    agent = bench.agents[name]
    await agent.obey(await agent.beat(), **how)
    await bench.quiet()


async def phases(bench: Bench) -> list[Phase]:
    """What each node is told to do about the job."""
    return [(await bench.agents[name].beat()).attempts[0].phase for name in BOTH]


async def test_one_node_that_is_slow_to_prepare_costs_the_gang_its_launch_and_nothing_else(bench):
    await obey(bench, "n1")
    await bench.pass_time(121, beating=BOTH)
    assert await phases(bench) == [Phase.STOP, Phase.STOP]
    await obey(bench, "n1")
    await bench.turn()
    assert await bench.free_devices() == 1, "the slow one keeps its device until it says CLEAN"
    assert await bench.state("j1") == "STOPPING"
    await obey(bench, "n2")
    await bench.turn()
    record = await bench.job("j1")
    assert (record.state, record.owned_devices) == (JobState.QUEUED, 0)
    assert record.not_before_ms > bench.clock.now_ms()
    late = await bench.agents["n2"].say(EvidenceKind.PREPARED, "j1", 1)
    assert late.attempt == 1
    await bench.turn()
    assert await bench.state("j1") == "QUEUED", "what comes late starts nothing"


async def test_one_node_that_does_not_start_ends_what_the_other_started(bench):
    for name in BOTH:
        await obey(bench, name)
    await obey(bench, "n1")
    assert await phases(bench) == [Phase.GO, Phase.GO]
    await bench.pass_time(61, beating=BOTH)
    record = await bench.job("j1")
    assert (record.state, record.reason) == (JobState.STOPPING, StopReason.START_TIMEOUT)
    for name in BOTH:
        await obey(bench, name)
    await bench.turn()
    assert await bench.free_devices() == 2
    assert await bench.state("j1") == "QUEUED"


async def test_one_refusal_ends_the_launch_of_the_other_node_too(bench):
    await obey(bench, "n1")
    await bench.agents["n2"].say(EvidenceKind.REFUSED, "j1", reason="LaunchRefused", message="no")
    await bench.turn()
    assert await phases(bench) == [Phase.STOP, Phase.STOP]


async def test_lost_pushes_cost_only_the_wait_for_a_heartbeat(bench, monkeypatch):
    async def lost(*_: object) -> None:
        raise Unavailable("the bus is away")

    monkeypatch.setattr(bench.bus, "emit", lost)
    for _ in range(12):
        await bench.turn()
        await bench.obey_all(exit_reason=StopReason.COMPLETED)
    record = await bench.job("j1")
    assert (record.state, record.attempt) == (JobState.SUCCEEDED, 1)


async def test_evidence_that_comes_twice_and_in_any_order_counts_once(bench):
    first, second = (bench.agents[name] for name in BOTH)
    started = await second.say(EvidenceKind.STARTED, "j1")  # before anybody prepared
    await bench.turn()
    assert await bench.state("j1") == "RESERVED"
    for name in BOTH:
        await obey(bench, name)
    for sent in (*first.sent, *second.sent):
        await bench.agents[sent.node].repeat(sent)
    await bench.turn()
    record = await bench.job("j1")
    assert record.attempt == 1
    assert record.state in (JobState.STARTING, JobState.RUNNING)
    assert started.attempt == 1
