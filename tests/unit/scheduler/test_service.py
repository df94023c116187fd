"""The whole service on memory doubles: jobs' lives, refusals, cancels, replays, questions."""

from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.scheduler import Bench, cancel_job, message, plan_job
from tests.support.scheduling import plan

from frenzy_shared.bus.port import DurableState
from frenzy_shared.domain.cluster import kinds_digest, summarize_kinds
from frenzy_shared.domain.job import JobState, StopReason
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import (
    DesiredSet,
    Evidence,
    EvidenceKind,
    ExplainReply,
    ExplainRequest,
    Phase,
    TelemetryBatch,
    TrainingPoint,
)
from frenzy_shared.state.port import Change

DONE = StopReason.COMPLETED


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as made:
        yield made


async def run_to(bench: Bench, job: str, state: str, **how: object) -> None:
    """Turn the wheels until a job is in a state."""
    for _ in range(12):
        if await bench.state(job) == state:
            return
        await bench.turn()
        if await bench.state(job) == state:
            return
        await bench.obey_all(**how)
    raise AssertionError(f"{job} is {await bench.job(job)}")


async def test_a_job_on_one_node_lives_and_succeeds(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "SUCCEEDED", exit_reason=DONE)
    record = await bench.job("j1")
    assert (record.attempt, record.owned_devices, record.last_step) == (1, 0, 10)
    assert record.rendezvous == "127.0.1.1:29500"
    assert await bench.free_devices() == 1
    assert await bench.events("j1") == [
        "submitted", "planned", "placed", "starting", "started", "stopping", "succeeded",
    ]  # fmt: skip
    versions = [entry["version"] for entry in await bench.store.timeline("j1")]
    assert versions == sorted(set(versions))


async def test_a_gang_of_two_nodes_goes_only_when_both_are_prepared(bench):
    first, second = await bench.node("n1"), await bench.node("n2", 2)
    await bench.queue("j1", plan("p1", "rtx", 3))
    await bench.turn()
    desired = await first.beat()
    (part,) = desired.attempts
    assert (part.phase, part.world_size, part.hosts_rank_zero) == (Phase.PREPARE, 3, False)
    assert [assignment.rank for assignment in part.ranks] == [2]
    assert part.spec.model == "gpt2"
    assert part.plan.id == "p1"
    await first.obey(desired)
    await bench.quiet()
    assert await bench.state("j1") == "RESERVED"
    await second.obey(await second.beat())
    await bench.quiet()
    assert await bench.state("j1") == "STARTING"
    (part,) = (await first.beat()).attempts
    assert (part.phase, part.rendezvous) == (Phase.GO, "127.0.1.1:29500")
    await run_to(bench, "j1", "SUCCEEDED", exit_reason=DONE)


async def test_transitions_are_pushed_to_the_nodes(bench):
    await bench.node("n1")
    pushed = []

    async def take(message):
        pushed.append(DesiredSet.decode(message.payload))

    await bench.bus.subscribe(subjects.desired("n1"), take)
    await bench.queue("j1")
    await run_to(bench, "j1", "SUCCEEDED", exit_reason=DONE)
    assert [part.phase for desired in pushed for part in desired.attempts] == [
        Phase.PREPARE,
        Phase.GO,
        Phase.GO,
        Phase.STOP,
    ]
    assert not any(desired.complete for desired in pushed)


async def test_a_refusal_backs_off_and_tries_again(bench):
    agent = await bench.node("n1")
    await bench.queue("j1")
    await bench.turn()
    await agent.say(EvidenceKind.REFUSED, "j1", reason="DeviceBusy", message="pid 7 uses it")
    await run_to(bench, "j1", "QUEUED")
    record = await bench.job("j1")
    assert (record.refusals, record.retries, record.reason) == (1, 0, "LaunchRefused")
    assert "pid 7 uses it" in record.message
    await bench.turn()
    pending = await bench.store.pending("j1")
    assert (pending["reason"], pending["position"]) == ("BackoffAfterFailure", 1)
    await bench.pass_time(11, beating=["n1"])
    assert (await bench.job("j1")).attempt == 2
    assert await bench.store.pending("j1") is None


async def test_out_of_memory_goes_back_to_marp_and_then_resumes_from_the_checkpoint(bench):
    agent = await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "RUNNING")
    await agent.say(EvidenceKind.CHECKPOINTED, "j1", step=7)
    await agent.exit("j1", 1, [0], StopReason.CUDA_OUT_OF_MEMORY)
    await run_to(bench, "j1", "SUBMITTED")
    assert (await bench.events("j1"))[-2:] == ["oom", "replanned"]
    await plan_job(bench.store, "j1", plan("p2", "rtx", 1))
    await bench.turn()
    (part,) = (await agent.beat()).attempts
    assert (part.attempt, part.plan.id, part.resume_step) == (2, "p2", 7)
    await run_to(bench, "j1", "RUNNING")
    await agent.exit("j1", 2, [0], StopReason.CUDA_OUT_OF_MEMORY)
    await run_to(bench, "j1", "FAILED")
    assert (await bench.job("j1")).reason == "CudaOutOfMemory"
    assert await bench.free_devices() == 1


async def test_a_user_error_is_retried_once_and_then_fails(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "QUEUED", exit_reason=StopReason.USER_CODE_ERROR)
    for _ in range(30):
        await bench.pass_time(1, beating=["n1"])
        await bench.obey_all(exit_reason=StopReason.USER_CODE_ERROR)
    record = await bench.job("j1")
    assert (record.state, record.attempt, record.retries) == (JobState.FAILED, 2, 1)
    assert record.message.endswith("(1 of 1 retries used)")


@pytest.mark.parametrize("state", ["QUEUED", "RESERVED", "STARTING", "RUNNING", "STOPPING"])
async def test_a_cancel_in_every_state_ends_cancelled_and_clean(bench, state):
    agent = await bench.node("n1")
    await bench.queue("j1")
    if state == "STOPPING":
        await run_to(bench, "j1", "RUNNING")
        await cancel_job(bench.store, "j1")
    elif state != "QUEUED":
        await run_to(bench, "j1", state)
        await cancel_job(bench.store, "j1")
    else:
        await cancel_job(bench.store, "j1")
    await run_to(bench, "j1", "CANCELLED")
    assert await bench.free_devices() == 1
    for old in list(agent.sent):  # evidence that comes again long after
        await agent.repeat(old)
    await bench.turn()
    assert await bench.state("j1") == "CANCELLED"


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_of_a_cancel_and_an_exit_the_first_wins(bench, cancel_first):
    agent = await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "RUNNING")
    if cancel_first:
        await cancel_job(bench.store, "j1")
        await agent.exit("j1", 1, [0], DONE)
    else:
        await agent.exit("j1", 1, [0], DONE)
        await bench.quiet()
        with pytest.raises(ValueError, match="cannot go from STOPPING"):
            await cancel_job(bench.store, "j1")
    await run_to(bench, "j1", "CANCELLED" if cancel_first else "SUCCEEDED")


async def test_a_cancel_by_the_gateway_reaches_the_node_without_a_heartbeat(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "RUNNING")
    await bench.scheduler._outbox.step()
    await cancel_job(bench.store, "j1")
    await bench.scheduler._outbox.step()
    assert bench.scheduler._cancelled.get_nowait() == "j1"


async def test_evidence_of_an_old_attempt_does_not_touch_the_new_one(bench):
    agent = await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "RUNNING")
    await agent.exit("j1", 1, [0], StopReason.USER_CODE_ERROR)
    await run_to(bench, "j1", "QUEUED")
    await bench.pass_time(11, beating=["n1"])
    await run_to(bench, "j1", "RUNNING")
    before = await bench.job("j1")
    for old in [evidence for evidence in agent.sent if evidence.attempt == 1]:
        await agent.repeat(old)
    await bench.turn()
    assert await bench.job("j1") == before


async def test_a_launch_that_nobody_answers_times_out(bench):
    agent = await bench.node("n1")
    await bench.queue("j1")
    await bench.turn()
    await bench.pass_time(121, beating=["n1"])
    record = await bench.job("j1")
    assert (record.state, record.reason) == (JobState.STOPPING, "StartTimeout")
    await agent.obey(await agent.beat())
    await bench.turn()
    assert await bench.state("j1") == "QUEUED"


async def test_waiting_jobs_are_explained_once_and_again_only_when_it_changes(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await bench.queue("j2")
    await bench.turn()
    assert (await bench.store.pending("j2")) == {
        "reason": "WaitingForCapacity",
        "message": "plan p1 needs 1 x rtx; 0 of 1 are idle",
        "nearest": "plan p1 needs 1 x rtx; 0 of 1 are idle",
        "position": 1,
    }
    writes = []
    apply = bench.store.apply

    async def counting(op, change):
        writes.append(change)
        return await apply(op, change)

    bench.store.apply = counting
    await bench.turn()
    assert [change for change in writes if change.documents] == []


async def test_plans_that_marp_renews_in_place_are_seen(bench):
    """MARP replaces a waiting job's plans without a new version when the kinds change."""
    await bench.queue("j1", plan("p1", "a100-80", 1))
    await bench.turn()
    assert (await bench.store.pending("j1"))["reason"] == "WaitingForNodes"
    await bench.node("n1")
    kinds = summarize_kinds((await bench.store.cluster()).nodes)
    renewed = PlanSet(plans=(plan("p1", "rtx", 1),), refused=(), kinds_digest=kinds_digest(kinds))
    change = Change(entity="job:j1", documents={"plans": to_json(renewed)})
    assert (await bench.store.apply("renew", change)).ok
    await run_to(bench, "j1", "SUCCEEDED", exit_reason=DONE)


async def test_plans_renewed_between_decision_and_claim_are_refused_not_run(bench):
    """The placement names a plan that is no longer what was decided on: nodes get none."""
    agent = await bench.node("n1")
    await bench.queue("j1")
    plans, renewed = (
        bench.store.plans,
        PlanSet(plans=(plan("p1", "a100-80", 2),), refused=(), kinds_digest="new"),
    )
    seen = []

    async def renewed_after_the_first_look(job):
        seen.append(job)
        return await plans(job) if len(seen) == 1 else renewed

    bench.store.plans = renewed_after_the_first_look
    await bench.scheduler._schedule()
    (part,) = (await agent.beat()).attempts
    assert (part.phase, part.plan, part.spec) == (Phase.PREPARE, None, None)


async def test_explain_answers_for_every_state(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await bench.queue("j2", plan("p9", "a100-80", 2))
    await bench.turn()

    async def ask(job):
        reply = await bench.bus.request(
            subjects.SCHEDULER_EXPLAIN, ExplainRequest(job=job).encode(), timeout_s=30
        )
        return ExplainReply.decode(reply)

    assert (await ask("j1")).message == "1 x rtx on n1, plan p1"
    waiting = await ask("j2")
    assert (waiting.state, waiting.reason, waiting.position) == ("QUEUED", "WaitingForNodes", 1)
    assert "needs 2 x a100-80" in waiting.message
    assert (await ask("nope")).error == "no job nope"
    reply = await bench.bus.request(subjects.SCHEDULER_EXPLAIN, b"{}", timeout_s=30)
    assert "not a question" in ExplainReply.decode(reply).error


async def test_training_metrics_are_kept(bench):
    point = TrainingPoint(rank=0, attempt=1, step=3, time_ms=9, loss=2.5)
    batch = TelemetryBatch(job="j1", project="default", points=(point,))
    await bench.bus.emit(subjects.telemetry("default", "j1"), batch.encode())
    await bench.bus.emit(subjects.telemetry("default", "j1"), b"garbage")
    await bench.quiet()
    assert await bench.store.series("j1") == (
        {"rank": 0, "attempt": 1, "step": 3, "time_ms": 9, "loss": 2.5},
    )


async def test_what_is_no_evidence_goes_to_the_dead_letters(bench):
    await bench.bus.publish(subjects.evidence("n1", "exited"), b"{}", message_id="x")
    await bench.quiet()
    assert await bench.bus.last_sequence(subjects.DLQ_STREAM) == 1


async def test_evidence_counts_after_its_stream_was_made_again(bench):
    """The new stream counts from 1: its numbers were seen before, the evidence was not."""
    first, second = await bench.node("n1"), await bench.node("n2")
    for job in ("j1", "j2"):
        await bench.queue(job)
    await bench.turn()
    for number, agent in enumerate((first, second), start=1):
        (attempt,) = (await agent.beat()).attempts
        prepared = Evidence(
            kind=EvidenceKind.PREPARED,
            node=agent.node,
            epoch=agent.epoch,
            sequence=number,
            time_ms=1,
            job=attempt.job,
            project="default",
            attempt=1,
            rendezvous="127.0.1.1:29500",
        )
        await bench.scheduler._incoming.evidence(message(prepared, sequence=1))
    assert [await bench.state(job) for job in ("j1", "j2")] == ["STARTING", "STARTING"]


async def test_metrics_show_what_is_before_the_durables(bench, monkeypatch):
    async def state(_stream, durable):
        return DurableState(pending=len(durable), unacknowledged=1, pulling=True)

    monkeypatch.setattr(bench.bus, "durable_state", state)
    await bench.turn()
    value = bench.scheduler.telemetry.registry.get_sample_value
    assert value("frenzy_consumer_lag", {"durable": "scheduler"}) == 10
    assert value("frenzy_consumer_lag", {"durable": "controller"}) == 11


async def test_metrics_count_states_reasons_and_nodes(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await bench.queue("j2")
    await bench.turn()
    await bench.turn()
    value = bench.scheduler.telemetry.registry.get_sample_value
    waiting = {"reason": "WaitingForCapacity", "project": "default"}
    assert value("frenzy_pending_jobs", waiting) == 1
    assert value("frenzy_jobs", {"state": "RESERVED"}) == 1
    assert value("frenzy_node_up", {"node": "n1"}) == 1
    assert value("frenzy_idle_devices", {"kind": "rtx"}) == 0
    assert value("frenzy_scheduler_leader") == 1
    assert value("frenzy_job_wait_seconds_count") == 1
    assert value("frenzy_scheduler_cycle_seconds_count") >= 1
    assert value("frenzy_outbox_lag") == 0


async def test_a_cycle_is_one_span_linked_to_the_trace_of_what_it_placed(bench):
    spans = InMemorySpanExporter()
    bench.scheduler.telemetry.provider.add_span_processor(SimpleSpanProcessor(spans))
    await bench.node("n1")
    await bench.queue("j1")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    patch = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    assert (await bench.store.apply("trace", Change(entity="job:j1", patch=patch))).ok
    await bench.scheduler._schedule()
    (cycle,) = [span for span in spans.get_finished_spans() if span.name == "scheduler.cycle"]
    (place,) = [span for span in spans.get_finished_spans() if span.name == "scheduler.place"]
    assert [f"{link.context.trace_id:032x}" for link in cycle.links] == [trace_id]
    assert f"{place.context.trace_id:032x}" == trace_id
    (entry,) = [e for e in bench.store._tables.outbox if e.type == "placed"]
    assert entry.traceparent.split("-")[1:3] == [trace_id, f"{place.context.span_id:016x}"]
    assert cycle.attributes["placed"] == 1


async def test_an_exit_that_a_killed_replica_had_in_hand_still_counts(bench):
    """CLEAN overtakes EXITED by more than the grace period; the job is not run twice."""
    agent = await bench.node("n1")
    await bench.queue("j1")
    await run_to(bench, "j1", "RUNNING")
    await agent.say(EvidenceKind.CLEAN, "j1")
    await bench.quiet()
    await bench.pass_time(90, beating=["n1"], step_s=3)
    assert await bench.state("j1") == "RUNNING"
    await agent.exit("j1", 1, [0], DONE)
    await run_to(bench, "j1", "SUCCEEDED")
    assert (await bench.job("j1")).attempt == 1
