import asyncio
import json

import pytest
from tests.support.state import FakeClock, submission

import frenzy_marp.service
from frenzy_marp.service import Marp
from frenzy_marp.settings import MarpSettings
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.port import DurableState, Message, Poison
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.outbox import OutboxRelay
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import Change, NodeRegistration
from frenzy_shared.telemetry import configure

SPEC = {"model": "gpt2-tiny", "data": "node:/text", "global_batch_size": 4}
ON_DEVICES = {"resources": {"offload": "none"}}


@pytest.fixture
async def world():
    clock = FakeClock()
    store, bus = MemoryStore(clock), MemoryBus()
    marp = Marp(
        state=store,
        bus=bus,
        clock=clock,
        settings=MarpSettings(),
        telemetry=configure("marp", MarpSettings()),
    )
    yield World(store, bus, marp)
    await bus.close()


class World:
    def __init__(self, store, bus, marp):
        self.store, self.bus, self.marp = store, bus, marp

    async def node(self, name="node-a", *, kind="emulated-a", mib=256, devices=2):
        registration = NodeRegistration(
            node=name,
            boot_id="boot",
            address="127.0.1.1",
            devices=tuple(
                Device(id=f"gpu{n}", kind=kind, memory_bytes=mib * 1024**2, emulated=True)
                for n in range(devices)
            ),
        )
        result = await self.store.register_node(f"register:{name}:{mib}", registration)
        assert result.ok
        self.marp.clock.advance(1.0)  # what was seen before is not believed any more

    async def submit(self, job, **fields):
        spec = parse_spec({**SPEC, **fields.pop("spec", {})}).model_dump(mode="json")
        result = await self.store.submit(f"submit:{job}", submission(job, spec=spec, **fields))
        assert result.ok

    async def relay(self):
        relay = OutboxRelay(store=self.store, bus=self.bus)
        while await relay.step():
            pass

    async def handle_events(self):
        """Give every stored event to MARP, as the durable would."""
        await self.relay()
        for message in self.bus.broker.messages(subjects.EVENTS_STREAM):
            await self.marp.on_event(message)


async def test_a_submitted_job_gets_plans_and_waits(world):
    await world.node()
    await world.submit("a")
    await world.handle_events()
    record = await world.store.job("a")
    assert record.state is JobState.QUEUED
    plans = await world.store.plans("a")
    assert plans.feasible
    assert plans.plans[0].kind == "emulated-a"
    await world.relay()
    events = [m.subject for m in world.bus.broker.messages(subjects.EVENTS_STREAM)]
    assert subjects.job_event("default", "planned", "a") in events


async def test_the_same_event_twice_changes_nothing(world):
    await world.node()
    await world.submit("a")
    await world.handle_events()
    before = await world.store.job("a")
    await world.handle_events()
    assert await world.store.job("a") == before


async def test_a_job_that_can_never_fit_fails_with_numbers(world):
    await world.node(mib=4)
    await world.submit("a", spec=ON_DEVICES)
    await world.handle_events()
    record = await world.store.job("a")
    assert (record.state, record.reason) == (JobState.FAILED, "NoFeasiblePlan")
    assert "the device has 4.00 MiB" in record.message
    assert record.finished_ms is not None


async def test_force_queue_waits_for_better_nodes(world):
    await world.node(mib=4)
    await world.submit("a", force_queue=True, spec=ON_DEVICES)
    await world.handle_events()
    assert (await world.store.job("a")).state is JobState.QUEUED
    assert not (await world.store.plans("a")).feasible
    await world.node("node-b", kind="emulated-b", mib=256)
    await world.marp.refresh()
    plans = await world.store.plans("a")
    assert {plan.kind for plan in plans.plans} == {"emulated-b"}


async def test_a_job_waits_while_there_are_no_nodes_at_all(world):
    await world.submit("a")
    await world.handle_events()
    record = await world.store.job("a")
    assert record.state is JobState.QUEUED
    assert record.message == "the cluster has no devices"


async def test_plans_follow_the_cluster_without_a_transition(world):
    await world.node()
    await world.submit("a")
    await world.handle_events()
    before, old = await world.store.job("a"), await world.store.plans("a")
    await world.marp.refresh()
    assert await world.store.plans("a") == old
    await world.node("node-b", kind="emulated-b", mib=512)
    await world.marp.refresh()
    assert (await world.store.plans("a")).kinds_digest != old.kinds_digest
    assert await world.store.job("a") == before


async def test_a_job_whose_event_was_missed_is_found(world):
    await world.node()
    await world.submit("a")
    await world.marp.catch_up()
    assert (await world.store.job("a")).state is JobState.SUBMITTED  # its event may be on its way
    await world.marp.catch_up()
    assert (await world.store.job("a")).state is JobState.QUEUED


async def test_a_project_with_one_job_does_not_wait_for_one_with_many(world, monkeypatch):
    await world.node()
    for number in range(40):
        await world.submit(f"storm-{number}", project="storm")
    await world.submit("other", project="other")
    monkeypatch.setattr(frenzy_marp.service, "_CATCH_UP_S", 5.0)  # of a clock that stands still
    planned, plan = [], world.marp._plan_submitted

    async def planning(record, present):
        planned.append(record.id)
        world.marp.clock.advance(1.0)
        await plan(record, present)

    monkeypatch.setattr(world.marp, "_plan_submitted", planning)
    await world.marp.catch_up()
    assert planned == []
    await world.marp.catch_up()
    assert "other" in planned[:2]
    assert len(planned) <= 7  # then events have their turn


async def test_who_was_planned_meanwhile_is_not_planned_again(world, monkeypatch):
    await world.node()
    await world.submit("a")
    await world.marp.catch_up()
    waiting = await world.store.jobs_in(frozenset({JobState.SUBMITTED}))
    await world.handle_events()

    async def as_before(_states):
        return waiting

    async def never(*_):
        raise AssertionError

    monkeypatch.setattr(world.store, "jobs_in", as_before)
    monkeypatch.setattr(world.marp, "_plan_submitted", never)
    await world.marp.catch_up()


async def test_plans_are_made_once_for_the_question_and_the_job(world, monkeypatch):
    await world.node()
    calls, plan = [], frenzy_marp.service.plan_job

    def counted(*arguments, **options):
        calls.append(arguments)
        return plan(*arguments, **options)

    monkeypatch.setattr(frenzy_marp.service, "plan_job", counted)
    question = PlanRequest(spec=parse_spec(SPEC)).encode()
    await world.marp.on_question(Message(subject=subjects.MARP_PLAN, payload=question))
    await world.submit("a")
    await world.handle_events()
    assert len(calls) == 1
    await world.node("node-b", kind="emulated-b")
    await world.submit("b")
    await world.handle_events()
    assert len(calls) == 2
    assert {plan.kind for plan in (await world.store.plans("b")).plans} >= {"emulated-b"}


async def test_fresh_plans_are_read_once(world, monkeypatch):
    await world.node()
    await world.submit("a")
    await world.handle_events()
    read, plans = [], world.store.plans

    async def counted(job):
        read.append(job)
        return await plans(job)

    monkeypatch.setattr(world.store, "plans", counted)
    for _ in range(3):
        await world.marp.refresh()
    assert read == ["a"]
    world.marp.clock.advance(400.0)  # another replica may have written since
    await world.marp.refresh()
    assert read == ["a", "a"]


@pytest.mark.parametrize("mib", [64, 4096])
async def test_after_an_out_of_memory_the_same_plan_does_not_come_again(world, mib):
    await world.node(mib=mib)
    await world.submit("a")
    await world.handle_events()
    plans = await world.store.plans("a")
    ran = max(plans.plans, key=lambda p: p.memory.required.high)
    record = await world.store.job("a")
    placement = {"plan": ran.id, "kind": ran.kind, "devices": []}
    outcome = {
        "rank": 0,
        "exit_code": 1,
        "reason": "CudaOutOfMemory",
        "peak_allocated_bytes": ran.memory.required.high,
    }
    change = Change(
        entity="job:a",
        expect_version=record.version,
        patch={
            "state": "SUBMITTED",
            "attempt": 1,
            "placement": placement,
            "outcomes": [outcome],
            "oom_retries": 1,
        },
    )
    assert (await world.store.apply("oom", change)).ok
    await world.marp.catch_up()
    await world.marp.catch_up()
    again = await world.store.plans("a")
    if not again.feasible:
        assert (await world.store.job("a")).reason == "NoFeasiblePlan"
        return
    assert (await world.store.job("a")).state is JobState.QUEUED
    assert ran.id not in {plan.id for plan in again.plans}
    terms = {term.name for term in again.plans[0].memory.terms}
    assert "correction from earlier runs" in terms


async def ask(world, payload):
    message = Message(subject=subjects.MARP_PLAN, payload=payload)
    return PlanReply.decode(await world.marp.on_question(message))


async def test_a_question_is_answered_and_stores_nothing(world):
    await world.node()
    reply = await ask(world, PlanRequest(spec=parse_spec(SPEC)).encode())
    assert reply.plans.feasible
    assert reply.error_code == ""


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ({"model": "gpt3"}, "invalid_model_config", "did you mean"),
        ({"model": {"model_type": "bert"}}, "invalid_model_config", "model.model_type"),
        ({"sequence_length": 9999}, "invalid_spec", "learned positions"),
    ],
)
async def test_a_bad_question_gets_an_error_in_words(world, spec, code, text):
    await world.node()
    reply = await ask(world, PlanRequest(spec=parse_spec({**SPEC, **spec})).encode())
    assert reply.plans is None
    assert reply.error_code == code
    assert text in reply.error


async def test_a_question_that_is_no_message_gets_an_error(world):
    reply = await ask(world, b"{not json")
    assert reply.error_code == "invalid_spec"


async def test_what_is_no_event_is_poison(world):
    with pytest.raises(Poison):
        await world.marp.on_event(Message(subject="x", payload=b"{}"))


async def test_a_job_whose_model_is_bad_fails_instead_of_looping(world):
    await world.node()
    await world.submit("a", spec={"model": {"model_type": "bert"}})
    await world.handle_events()
    record = await world.store.job("a")
    assert record.state is JobState.FAILED
    assert "bert" in record.message


async def test_the_running_service_plans_answers_and_stops(world):
    await world.node()
    stop = asyncio.Event()
    running = asyncio.ensure_future(world.marp.run(stop))
    await asyncio.sleep(0)
    await world.submit("a")
    await world.relay()
    async with asyncio.timeout(5):
        while (await world.store.job("a")).state is not JobState.QUEUED:
            await asyncio.sleep(0.01)
        request = PlanRequest(spec=parse_spec(SPEC)).encode()
        answer = await world.bus.request(subjects.MARP_PLAN, request, timeout_s=2)
        assert json.loads(answer)["plans"]["plans"]
        stop.set()
        await running


async def test_one_job_that_cannot_be_planned_does_not_stop_the_others(world, monkeypatch):
    await world.node()
    await world.submit("a")
    await world.submit("b")
    plan = frenzy_marp.service.plan_job
    calls = []

    def fail_once(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise ZeroDivisionError
        return plan(*arguments, **options)

    monkeypatch.setattr(frenzy_marp.service, "plan_job", fail_once)
    await world.marp.catch_up()
    await world.marp.catch_up()
    states = [(await world.store.job(job)).state for job in ("a", "b")]
    assert sorted(states) == [JobState.QUEUED, JobState.SUBMITTED]
    await world.marp.catch_up()
    states = [(await world.store.job(job)).state for job in ("a", "b")]
    assert states == [JobState.QUEUED] * 2


async def test_a_question_that_breaks_the_planner_is_answered(world, monkeypatch):
    await world.node()

    def broken(*_arguments, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr(frenzy_marp.service, "plan_job", broken)
    reply = await ask(world, PlanRequest(spec=parse_spec(SPEC)).encode())
    assert (reply.plans, reply.error_code) == (None, "internal")


async def test_what_is_before_the_durable_is_shown(world, monkeypatch):
    async def state(_stream, _durable):
        return DurableState(pending=3, unacknowledged=1, pulling=True)

    await world.marp._report()  # of a bus without such a durable: nothing
    monkeypatch.setattr(world.bus, "durable_state", state)
    await world.marp._report()
    value = world.marp.telemetry.registry.get_sample_value
    assert value("frenzy_consumer_lag", {"durable": "marp"}) == 4


async def test_a_cluster_is_read_once_for_what_is_asked_in_a_moment(world, monkeypatch):
    await world.node()
    reads, cluster = [], world.store.cluster

    async def counted():
        reads.append(world.marp.clock.monotonic())
        return await cluster()

    monkeypatch.setattr(world.store, "cluster", counted)
    question = Message(
        subject=subjects.MARP_PLAN, payload=PlanRequest(spec=parse_spec(SPEC)).encode()
    )
    for _ in range(3):
        await world.marp.on_question(question)
    assert len(reads) == 1
    world.marp.clock.advance(0.5)
    await world.marp.on_question(question)
    assert len(reads) == 2
    await world.marp.refresh()  # which tells stale plans, looks itself
    assert len(reads) == 3
