"""Explain and queue on the whole scheduler: reasons, what would help, and predicted times."""

from datetime import UTC, datetime, timedelta

from tests.support.scheduler import Bench
from tests.support.scheduling import plan as a_scheduling_plan
from tests.support.simulation import a_plan

from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    ExplainReply,
    ExplainRequest,
    PlanReply,
    PlanRequest,
    QueueReply,
    QueueRequest,
    TelemetryBatch,
    TrainingPoint,
)
from frenzy_shared.state.port import Change

ONE = a_plan("p1", "rtx", 1, 1.0)  # MARP says 1000 s


async def ask(bench, job):
    request = ExplainRequest(job=job).encode()
    reply = await bench.bus.request(subjects.SCHEDULER_EXPLAIN, request, timeout_s=5)
    return ExplainReply.decode(reply)


async def ask_queue(bench, **what):
    request = QueueRequest(**what).encode()
    reply = await bench.bus.request(subjects.SCHEDULER_QUEUE, request, timeout_s=5)
    return QueueReply.decode(reply)


def after(bench, seconds):
    return datetime.fromtimestamp(bench.clock.now_ms() / 1000, UTC) + timedelta(seconds=seconds)


async def running(bench, job, *plans, **spec):
    await bench.queue(job, *plans, **spec)
    for _ in range(4):
        await bench.turn()
        await bench.obey_all()
    await bench.turn()
    assert await bench.state(job) == "RUNNING"


async def test_a_waiting_job_hears_when_it_starts_and_ends_and_after_whom():
    async with Bench() as bench:
        await bench.node("n1")
        await running(bench, "first", ONE, max_steps=600)
        await bench.queue("second", ONE, max_steps=100)
        await bench.turn()
        reply = await ask(bench, "second")
        assert (reply.reason, reply.position) == ("WaitingForCapacity", 1)
        (way,) = reply.would_start
        assert (
            way.text == "would start with 1 x rtx free in ~10 min (job first is predicted to end)"
        )
        assert (way.what, way.plan, way.after_s) == ("time", "p1", 600.0)
        assert after(bench, 400) < reply.eta.start.p50 < after(bench, 800)
        assert reply.eta.start.p50 < reply.eta.start.p90 < after(bench, 1600)
        assert reply.eta.start.p50 < reply.eta.end.p50
        assert reply.basis.futures == 16
        first = await ask(bench, "first")
        assert first.eta.start is None
        assert after(bench, 400) < first.eta.end.p50 < after(bench, 800)


async def test_a_job_of_a_draining_node_hears_why_it_waits_instead_of_a_time():
    async with Bench(policy="frenzy") as bench:
        for name in ("n1", "n2"):
            await bench.node(name)
        node = await bench.store.node("n2")
        patch = {"drain": "drained by ann", "state": "DRAINING", "reason": "drained by ann"}
        change = Change(entity="node:n2", expect_version=node.version, patch=patch)
        assert (await bench.store.apply("drain", change)).ok
        await bench.queue("pinned", ONE, max_steps=100, resources={"nodes": ["n2"]})
        await bench.turn()
        reply = await ask(bench, "pinned")
        assert (reply.state, reply.reason, reply.eta) == ("QUEUED", "WaitingForNodes", None)
        assert "the nodes that it may use have 0" in reply.message
        (way,) = (way for way in reply.would_start if way.what == "node")
        assert "if node n2 (DRAINING" in way.text
        assert reply.basis.reaches is None


async def test_measured_steps_make_a_running_jobs_end_precise():
    async with Bench() as bench:
        await bench.node("n1")
        await running(bench, "j", ONE, max_steps=1000)
        points = tuple(
            TrainingPoint(rank=0, attempt=1, step=step, time_ms=step, step_seconds=2.0)
            for step in range(1, 5)
        )
        batch = TelemetryBatch(job="j", project="default", points=points)
        await bench.bus.emit(subjects.telemetry("default", "j"), batch.encode())
        await bench.quiet()
        eta = (await ask(bench, "j")).eta
        assert after(bench, 1800) < eta.end.p50 < eta.end.p90 < after(bench, 2300)


async def test_marp_is_asked_what_the_job_could_run_with_without_its_pins():
    asked = []

    async def marp(message):
        spec = PlanRequest.decode(message.payload).spec
        asked.append(spec.resources.model_dump(exclude_defaults=True))
        plans = () if spec.resources.gpus else (a_scheduling_plan("p7", "rtx", 1, micro_batch=2),)
        return PlanReply(plans=PlanSet(plans=plans, refused=(), kinds_digest="")).encode()

    async with Bench() as bench:
        await bench.bus.serve(subjects.MARP_PLAN, marp)
        await bench.node("n1")
        pins = {"gpus": 4, "kinds": ["rtx"]}
        await bench.queue("j", a_plan("p4", "rtx", 4, 1.0), resources=pins)
        await bench.turn()
        reply = await ask(bench, "j")
        assert [way.text for way in reply.would_start] == [
            "would start now with 1 GPU instead of 4: 1 x rtx, ZeRO-1, micro-batch 2 (plan p7)"
        ]
        assert asked == [{"kinds": ("rtx",)}, {"gpus": 4}]


async def test_the_queue_is_in_order_and_of_one_project_if_asked():
    async with Bench() as bench:
        await bench.node("n1")
        for number in range(4):
            await bench.queue(f"j{number}", ONE)
        await bench.turn()
        whole = await ask_queue(bench)
        assert (whole.policy, whole.total) == ("has", 3)
        assert [(one.position, one.job) for one in whole.entries] == [
            (1, "j1"),
            (2, "j2"),
            (3, "j3"),
        ]
        starts = [one.eta.start.p50 for one in whole.entries]
        assert starts == sorted(starts)
        assert whole.entries[0].message == "plan p1 needs 1 x rtx; 0 of 1 are idle"
        two = await ask_queue(bench, limit=2)
        assert (two.total, len(two.entries)) == (3, 2)
        assert (await ask_queue(bench, project="other")).total == 0


async def test_what_cannot_be_read_is_answered():
    async with Bench() as bench:
        for subject, kind in (
            (subjects.SCHEDULER_QUEUE, QueueReply),
            (subjects.SCHEDULER_RECORD, ExplainReply),
        ):
            reply = await bench.bus.request(subject, b'{"limit": 0, "cycles": 0}', timeout_s=1)
            assert "not a question" in kind.decode(reply).error


async def test_recent_submissions_are_expected_to_go_on():
    """Jobs that keep coming and overtake a wide one make its band wider."""
    wide = a_plan("p2", "rtx", 2, 1.0)
    async with Bench() as bench:
        await bench.node("n1", devices=2)
        await bench.queue("n0", ONE)
        await bench.turn()
        await bench.queue("wide", wide)
        await bench.turn()
        arrivals = await bench.scheduler._incoming.explain.forecasting.recent.arrivals()
        assert {job.id for job in arrivals.jobs} == {"n0", "wide"}
        assert arrivals.per_s == 2 / 86_400
