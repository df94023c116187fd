"""Running jobs are stopped for others, give their devices back, and go on: the whole service."""

import pytest
from tests.support.scheduler import Bench
from tests.support.simulation import a_plan

from frenzy_shared.domain.job import RankOutcome, StopReason
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    EvidenceKind,
    ExplainReply,
    ExplainRequest,
    QueueReply,
    QueueRequest,
)

ONE = a_plan("p1", "rtx", 1, 1.0)
TWO = a_plan("p2", "rtx", 2, 0.5)
OTHER = a_plan("p3", "t4", 1, 3.0)


async def train(bench, job, *, attempt=1, step=None):
    """Bring a placed job to RUNNING on every node that holds it; report a step."""
    for _ in range(3):
        await bench.obey_all()
        await bench.turn()
    if step is not None:
        node = next(a for a in bench.agents.values() if (job, attempt) in a.held)
        await node.say(EvidenceKind.PROGRESSED, job, attempt, step=step, loss=2.0)
        await bench.turn()
    assert await bench.state(job) == "RUNNING"


async def save_and_go(bench, job, *, attempt=1, step=None, node="n1"):
    await tell_that_it_went(bench, job, attempt=attempt, step=step, node=node)
    await bench.turn()


async def tell_that_it_went(bench, job, *, attempt=1, step=None, node="n1"):
    """What ranks and node do on SIGTERM: a checkpoint, exit 143, clean."""
    agent = bench.agents[node]
    if step is not None:
        await agent.say(EvidenceKind.CHECKPOINTED, job, attempt, step=step)
    outcome = RankOutcome(rank=0, exit_code=143, reason=StopReason.PREEMPTED, last_step=step)
    await agent.say(EvidenceKind.EXITED, job, attempt, outcomes=(outcome,))
    agent.held[job, attempt] = AttemptPhase.CLEAN
    await agent.say(EvidenceKind.CLEAN, job, attempt)
    await bench.quiet()


@pytest.fixture
async def bench():
    """One rtx; "long" trains on it with 900 of 1,000 steps left."""
    async with Bench(policy="srtf-preemptive") as bench:
        await bench.node("n1")
        await bench.queue("long", ONE, OTHER, max_steps=1000)
        await bench.turn()
        await train(bench, "long", step=100)
        yield bench


async def test_a_shorter_job_gets_the_devices_once_they_are_free(bench):
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    stopping = await bench.job("long")
    assert (stopping.state, stopping.reason) == ("STOPPING", "Preempted")
    assert stopping.message == (
        "preempted with about 900 s left on 1 x rtx; for job short, which has about 50 s left on "
        "1 x rtx; a restart costs about 0 s"
    )
    assert await bench.state("short") == "QUEUED"
    waits = await bench.store.pending("short")
    assert waits["reason"] == "WaitingForPreemptedJobs"
    assert "1 of its 1 x rtx on n1 are being given back by job long" in waits["message"]
    bench.clock.advance(3.0)
    await save_and_go(bench, "long", step=110)
    record = await bench.job("long")
    assert (record.state, record.attempt, record.preemptions) == ("QUEUED", 1, 1)
    assert (record.retries, record.checkpoint_step, record.save_ms) == (0, 110, 3000)
    note = "; it saved step 110, nothing is lost; queued again, no retry is counted"
    assert record.message.endswith(note)
    assert await bench.state("short") == "RESERVED"
    assert await bench.free_devices() == 0


async def test_the_stopped_job_goes_on_elsewhere_from_its_checkpoint(bench):
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    await save_and_go(bench, "long", step=110)
    await bench.node("n2", kind="t4")
    await bench.turn()
    record = await bench.job("long")
    assert (record.state, record.attempt, record.placement.kind) == ("RESERVED", 2, "t4")
    (desired,) = (await bench.agents["n2"].beat()).attempts
    assert (desired.resume_step, desired.plan.id) == (110, "p3")


async def test_devices_on_their_way_back_go_to_nobody_else(bench):
    """While long saves, a third job arrives that is longer than short: it waits its turn."""
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    await bench.queue("third", ONE, max_steps=60)
    await bench.turn()
    await save_and_go(bench, "long", step=110)
    states = [await bench.state(job) for job in ("long", "short", "third")]
    assert states == ["QUEUED", "RESERVED", "QUEUED"]


async def test_events_say_who_was_stopped_for_whom(bench):
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    entries = bench.store._tables.outbox
    (event,) = [entry for entry in entries if entry.type == "preempted"]
    assert event.entity == "job:long"
    assert event.data["for"] == ["short"]
    assert (event.data["resized"], event.data["step"]) == (False, 100)
    kinds = await bench.events("long")
    assert kinds[kinds.index("preempted") + 1] == "stopping"


async def test_steps_after_the_last_checkpoint_are_said_to_be_lost(bench):
    await bench.agents["n1"].say(EvidenceKind.CHECKPOINTED, "long", step=80)
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    await save_and_go(bench, "long")
    message = (await bench.job("long")).message
    assert "its last checkpoint is of step 80: 20 steps are lost" in message


async def test_a_job_that_ended_before_it_heard_has_succeeded(bench):
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    agent = bench.agents["n1"]
    await agent.exit("long", 1, [0], StopReason.COMPLETED)
    await agent.say(EvidenceKind.CLEAN, "long")
    await bench.turn()
    assert await bench.state("long") == "SUCCEEDED"
    assert await bench.state("short") == "RESERVED"


async def test_a_job_that_says_no_is_left_alone():
    async with Bench(policy="srtf-preemptive") as bench:
        await bench.node("n1")
        await bench.queue("long", ONE, max_steps=1000, preemptible=False)
        await bench.turn()
        await train(bench, "long", step=1)
        await bench.queue("short", ONE, max_steps=50)
        await bench.turn()
        assert await bench.state("long") == "RUNNING"
        assert (await bench.store.pending("short"))["reason"] == "WaitingForCapacity"


async def test_a_job_is_not_stopped_before_its_first_step():
    async with Bench(policy="srtf-preemptive") as bench:
        await bench.node("n1")
        await bench.queue("long", ONE, max_steps=1000)
        await bench.turn()
        await bench.queue("short", ONE, max_steps=50)
        for _ in range(3):
            await bench.obey_all()
            await bench.turn()
            assert (await bench.job("long")).preemptions == 0
        await bench.agents["n1"].say(EvidenceKind.PROGRESSED, "long", step=1, loss=2.0)
        await bench.turn()
        assert await bench.state("long") == "STOPPING"


async def test_a_job_grows_when_devices_become_free():
    async with Bench(policy="frenzy", min_run_factor=0) as bench:
        await bench.node("n1", devices=2)
        await bench.queue("first", ONE, max_steps=20)
        await bench.turn()
        await train(bench, "first", step=1)
        await bench.queue("grows", ONE, TWO, max_steps=100_000)
        await bench.turn()
        await train(bench, "grows", step=1)
        assert (await bench.job("grows")).placement.plan == "p1"
        agent = bench.agents["n1"]
        await agent.exit("first", 1, [0], StopReason.COMPLETED)
        await agent.say(EvidenceKind.CLEAN, "first")
        await bench.turn()
        await bench.turn()
        record = await bench.job("grows")
        assert (record.state, record.reason) == ("STOPPING", "Preempted")
        assert "to go on with 2 x rtx instead of 1 x rtx" in record.message
        await save_and_go(bench, "grows", step=5)
        record = await bench.job("grows")
        assert (record.state, record.attempt, record.placement.plan) == ("RESERVED", 2, "p2")


async def test_a_leader_that_takes_over_finds_the_same_plan(bench):
    """All that a stop needs is in the store: a new replica goes on where the old one was killed."""
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    bench.scheduler._scheduling.forget()
    bench.scheduler._take_over()
    await save_and_go(bench, "long", step=110)
    assert await bench.state("short") == "RESERVED"


async def test_a_job_that_is_queued_again_during_a_look_is_seen_once(bench, monkeypatch):
    """Missed, its devices would be anybody's for one cycle."""
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    read = bench.store.jobs_in

    async def read_then_race(states):
        found = await read(states)
        if await bench.state("long") == "STOPPING":
            await tell_that_it_went(bench, "long", step=110)
        return found

    monkeypatch.setattr(bench.store, "jobs_in", read_then_race)
    situation = await bench.scheduler._look.at_everything()
    assert sorted(job.id for job in situation.queue) == ["long", "short"]
    assert situation.records["long"].state == "QUEUED"
    assert situation.returning == {}


async def test_service_counts_while_a_job_runs_and_after_it_was_stopped(bench):
    """What `las` orders by."""
    bench.clock.advance(60.0)
    (long,) = (await bench.scheduler._look.at_everything()).running
    assert long.progress.attained_device_s == 60.0
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    bench.clock.advance(5.0)
    await save_and_go(bench, "long", step=110)
    bench.clock.advance(100.0)
    queue = (await bench.scheduler._look.at_everything()).queue
    assert [job.progress.attained_device_s for job in queue] == [65.0]


async def test_explain_and_the_queue_know_of_devices_on_their_way(bench):
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    await bench.queue("third", ONE, max_steps=60)
    await bench.turn()
    queue = QueueReply.decode(await asked(bench, subjects.SCHEDULER_QUEUE, QueueRequest()))
    told = [(entry.job, entry.position, entry.reason) for entry in queue.entries]
    assert told == [
        ("short", 1, "WaitingForPreemptedJobs"),
        ("third", 3, "WaitingForCapacity"),
    ], "the second is the stopped job itself, which has not left yet"
    question = ExplainRequest(job="short")
    answer = ExplainReply.decode(await asked(bench, subjects.SCHEDULER_EXPLAIN, question))
    assert (answer.reason, answer.position) == ("WaitingForPreemptedJobs", 1)
    positions = [(await bench.store.pending(job))["position"] for job in ("short", "third")]
    assert positions == [1, 3]


async def test_explain_tells_a_waiting_job_why_it_was_stopped(bench):
    await bench.queue("short", ONE, max_steps=50)
    await bench.turn()
    await save_and_go(bench, "long", step=110)
    question = ExplainRequest(job="long")
    answer = ExplainReply.decode(await asked(bench, subjects.SCHEDULER_EXPLAIN, question))
    assert answer.state == "QUEUED"
    assert "; attempt 1 ended: preempted with about 900 s left" in answer.message
    assert "for job short" in answer.message


async def asked(bench, subject, question):
    return await bench.bus.request(subject, question.encode(), timeout_s=30)
