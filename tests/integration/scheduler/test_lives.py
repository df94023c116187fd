"""Jobs' lives through real NATS and Valkey, with agents that follow a script."""

import asyncio

import pytest
from tests.support.scheduler import cancel_job, plan_job, submit_job
from tests.support.scheduling import plan

from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages import subjects
from frenzy_shared.messages.envelope import CloudEvent, short_kind
from frenzy_shared.messages.v1 import EvidenceKind, ExplainReply, ExplainRequest

DONE = StopReason.COMPLETED


async def queue(site, job, *plans, **spec):
    await submit_job(site.store, job, **spec)
    await plan_job(site.store, job, *plans)


async def stored_events(site, job, last):
    """Read the job's events from JetStream up to one of kind ``last``."""
    found = []
    events = site.bus.read(
        subjects.EVENTS_STREAM, subjects.job_events("default", job), after_sequence=0
    )
    async for message in events:
        if message is not None:
            found.append(CloudEvent.decode(message.payload))
            if short_kind(found[-1].type) == last:
                break
    await events.aclose()
    return found


async def test_a_whole_life_with_its_events(site):
    await site.scheduler()
    await site.agent("n1", exit_reason=DONE)
    await queue(site, "j1")
    record = await site.reaches("j1", "SUCCEEDED")
    assert (record.attempt, record.owned_devices) == (1, 0)
    assert await site.owners() == {"n1/rtx-0": ""}
    events = await stored_events(site, "j1", "succeeded")
    assert [short_kind(event.type) for event in events] == [
        "submitted", "planned", "placed", "starting", "started", "stopping", "succeeded",
    ]  # fmt: skip
    versions = [event.data["record"]["version"] for event in events]
    assert versions == sorted(versions)
    assert [entry["state"] for entry in await site.store.timeline("j1")] == [
        "SUBMITTED", "QUEUED", "RESERVED", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED",
    ]  # fmt: skip


async def test_a_gang_on_two_nodes(site):
    await site.scheduler()
    await site.agent("n1", exit_reason=DONE)
    await site.agent("n2", 2, exit_reason=DONE)
    await queue(site, "j1", plan("p1", "rtx", 3))
    record = await site.reaches("j1", "SUCCEEDED")
    assert [ref.key for ref in record.placement.devices] == ["n2/rtx-0", "n2/rtx-1", "n1/rtx-0"]
    assert sorted(record.clean) == ["n1", "n2"]
    assert [outcome.rank for outcome in record.outcomes] == [0, 1, 2]


async def test_jobs_share_a_node_one_after_the_other_in_arrival_order(site):
    await site.scheduler()
    await site.agent("n1", exit_reason=DONE)
    for number in range(5):
        await queue(site, f"j{number}")
    started = [(await site.reaches(f"j{n}", "SUCCEEDED")).started_ms for n in range(5)]
    assert started == sorted(started)


async def test_a_refusal_is_tried_again_after_its_backoff(site):
    await site.scheduler()
    agent = await site.agent("n1", limit="prepare")
    await queue(site, "j1")
    await site.reaches("j1", "RESERVED")
    await agent.say(EvidenceKind.REFUSED, "j1", reason="DeviceBusy", message="pid 7 uses it")
    record = await site.reaches("j1", "QUEUED")
    assert (record.refusals, record.retries) == (1, 0)
    agent.limit, agent.exit_reason = "", DONE
    assert (await site.reaches("j1", "SUCCEEDED")).attempt == 2


async def test_out_of_memory_is_planned_again_and_resumed(site):
    await site.scheduler()
    agent = await site.agent("n1")
    await queue(site, "j1")
    await site.reaches("j1", "RUNNING")
    await agent.say(EvidenceKind.CHECKPOINTED, "j1", step=7)
    await agent.exit("j1", 1, [0], StopReason.CUDA_OUT_OF_MEMORY)
    record = await site.reaches("j1", "SUBMITTED")
    assert (record.oom_retries, record.checkpoint_step) == (1, 7)
    agent.exit_reason = DONE
    await plan_job(site.store, "j1", plan("p2", "rtx", 1))
    record = await site.reaches("j1", "SUCCEEDED")
    assert (record.attempt, record.placement.plan) == (2, "p2")
    events = await stored_events(site, "j1", "succeeded")
    assert "oom" in [short_kind(event.type) for event in events]


@pytest.mark.parametrize("cancel_first", [True, False])
@pytest.mark.parametrize(
    ("limit", "state", "evidence"),
    [
        ("prepare", "RESERVED", EvidenceKind.PREPARED),
        ("go", "STARTING", EvidenceKind.STARTED),
        ("stop", "RUNNING", EvidenceKind.EXITED),
    ],
)
async def test_cancel_and_evidence_in_both_orders(site, limit, state, evidence, cancel_first):
    await site.scheduler()
    agent = await site.agent("n1", limit=limit)
    await queue(site, "j1")
    await site.reaches("j1", state)

    async def say():
        if evidence is EvidenceKind.EXITED:
            await agent.exit("j1", 1, [0], StopReason.USER_CODE_ERROR)
        else:
            await agent.say(evidence, "j1", rendezvous="127.0.1.1:1")

    if cancel_first:
        await cancel_job(site.store, "j1")
        await say()
    else:
        before = (await site.store.job("j1")).version
        await say()

        async def recorded():
            return (await site.store.job("j1")).version > before

        await site.until(recorded, "the evidence is recorded")
        if evidence is not EvidenceKind.EXITED:  # an exit is a decision of its own: it came first
            await cancel_job(site.store, "j1")
    agent.limit = ""
    ends = "CANCELLED" if cancel_first or evidence is not EvidenceKind.EXITED else "QUEUED"
    record = await site.reaches("j1", ends, "RESERVED" if ends == "QUEUED" else ends)
    assert record.owned_devices == len(
        record.placement.devices if record.state == "RESERVED" else ()
    )


async def test_a_cancel_of_a_waiting_job(site):
    await site.scheduler()
    await queue(site, "j1")
    await cancel_job(site.store, "j1")
    await site.agent("n1", exit_reason=DONE)
    await queue(site, "j2")
    await site.reaches("j2", "SUCCEEDED")
    assert (await site.store.job("j1")).state == "CANCELLED"


async def test_replayed_evidence_changes_nothing(site):
    await site.scheduler()
    agent = await site.agent("n1", exit_reason=StopReason.USER_CODE_ERROR)
    await queue(site, "j1")

    async def failed_once():
        return (await site.store.job("j1")).retries == 1

    await site.until(failed_once, "the first attempt is over")
    agent.exit_reason = None
    await site.reaches("j1", "RUNNING")
    before = await site.store.job("j1")
    for old in [evidence for evidence in agent.sent if evidence.attempt == 1]:
        await agent.repeat(old)
    marker = await agent.say(EvidenceKind.PROGRESSED, "j1", 2, step=1)
    record = await site.until(lambda: _progressed(site), "the last message is handled")
    assert (record.state, record.attempt, record.version) == ("RUNNING", 2, before.version + 1)
    assert marker.attempt == 2


async def test_an_agent_that_registers_again_keeps_its_job(site):
    await site.scheduler()
    agent = await site.agent("n1")
    await queue(site, "j1")
    await site.reaches("j1", "RUNNING")
    agent.epoch = 0

    async def again():
        node = await site.store.node("n1")
        return node.epoch == 2 and node.state == "UP"

    await site.until(again, "n1 is UP with epoch 2")
    assert (await site.store.job("j1")).state == "RUNNING"
    await agent.exit("j1", 1, [0], DONE)
    await site.reaches("j1", "SUCCEEDED")


async def test_explain_names_the_reason_with_numbers(site):
    await site.scheduler()
    await site.agent("n1")
    await queue(site, "j1")
    await site.reaches("j1", "RUNNING")
    await queue(site, "j2")
    reply = await site.bus.request(
        subjects.SCHEDULER_EXPLAIN, ExplainRequest(job="j2").encode(), timeout_s=2
    )
    answer = ExplainReply.decode(reply)
    assert (answer.reason, answer.position) == ("WaitingForCapacity", 1)
    assert answer.message == "plan p1 needs 1 x rtx; 0 of 1 are idle"

    async def stored():
        return await site.store.pending("j2")

    pending = await site.until(stored, "the pending document")
    assert pending["message"] == answer.message


async def test_two_schedulers_in_one_queue_never_place_twice(site):
    await asyncio.gather(site.scheduler("s1"), site.scheduler("s2"))
    for name in ("n1", "n2"):
        await site.agent(name, 2, exit_reason=DONE)
    for number in range(12):
        await queue(site, f"j{number}", plan("p1", "rtx", 1 + number % 3))
    for number in range(12):
        record = await site.reaches(f"j{number}", "SUCCEEDED")
        assert record.attempt == 1
    assert set((await site.owners()).values()) == {""}


async def _progressed(site):
    record = await site.store.job("j1")
    return record if record.last_step is not None else None
