"""Attempts that end change the next prediction, in every replica, once and without a restart."""

import logging

import pytest
from tests.support.state import FakeClock, submission

from frenzy_marp.learning import GROUPS, KEEP, Learner
from frenzy_marp.metrics import Metrics
from frenzy_marp.service import Marp
from frenzy_marp.settings import MarpSettings
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.port import Message
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.messages.estimate import DriftList
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.v1 import PlanReply, PlanRequest
from frenzy_shared.outbox import OutboxRelay
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import Change, NodeRegistration, OutboxMessage
from frenzy_shared.telemetry import configure

SCRIPT = {
    "model": "gpt2-mini",
    "data": "node:/text",
    "entrypoint": {"script": "train.py"},
    "workdir": "node:/code",
    "global_batch_size": 4,
    "resources": {"gpus": 1, "zero_stage": 1, "micro_batch_size": 4},
    "gradient_checkpointing": "none",
}
COMPLETED = {"exit_code": 0, "reason": "Completed", "last_step": 50}


class World:
    """A store, a bus, and replicas of MARP that share them."""

    def __init__(self):
        self.clock = FakeClock()
        self.store, self.bus = MemoryStore(self.clock), MemoryBus()
        self.telemetry = [configure("marp", MarpSettings()) for _ in range(2)]
        self.one, self.other = (
            Marp(
                state=self.store,
                bus=self.bus,
                clock=self.clock,
                settings=MarpSettings(),
                telemetry=telemetry,
            )
            for telemetry in self.telemetry
        )

    async def node(self, mib=4000):
        device = Device(id="gpu0", kind="emulated-a", memory_bytes=mib * 2**20, emulated=True)
        registration = NodeRegistration(
            node="node-a", boot_id="boot", address="127.0.1.1", devices=(device,)
        )
        await self.store.register_node(f"register:{mib}", registration)
        self.clock.advance(1.0)  # what was seen before is not believed any more

    async def events(self):
        relay = OutboxRelay(store=self.store, bus=self.bus)
        while await relay.step():
            pass
        return self.bus.broker.messages(subjects.EVENTS_STREAM)

    async def run(self, job, *, spec=SCRIPT, ends=JobState.STOPPING, **outcome):
        """Submit, plan, and end a job on one device with an outcome like a node's."""
        document = parse_spec(spec).model_dump(mode="json")
        await self.store.submit(f"submit:{job}", submission(job, spec=document))
        await self.plan()
        plans = await self.store.plans(job)
        placement = {
            "plan": plans.plans[0].id,
            "kind": "emulated-a",
            "devices": [{"node": "node-a", "device": "gpu0", "epoch": 1}],
        }
        change = Change(
            entity=f"job:{job}",
            patch={
                "state": ends,
                "attempt": 1,
                "placement": placement,
                "outcomes": [{"rank": 0, **COMPLETED, **outcome}],
            },
            outbox=[
                OutboxMessage(subject=subjects.job_event("default", "updated", job), type="updated")
            ],
        )
        assert (await self.store.apply(f"end:{job}", change)).ok
        return plans.plans[0]

    async def plan(self):
        """Let a replica find the jobs to plan by itself: at the second look, events are late."""
        for _ in range(2):
            await self.one.catch_up()

    async def tell(self, marp):
        for message in await self.events():
            await marp.on_event(message)

    def value(self, name, **labels):
        return self.telemetry[0].registry.get_sample_value(name, labels)


async def ask(marp, spec=SCRIPT):
    payload = PlanRequest(spec=parse_spec(spec)).encode()
    reply = await marp.on_question(Message(subject=subjects.MARP_PLAN, payload=payload))
    return PlanReply.decode(reply).plans.plans[0]


@pytest.fixture
async def world():
    made = World()
    await made.node()
    yield made
    await made.bus.close()


async def test_a_script_that_takes_more_changes_the_next_prediction_everywhere(world):
    ran = await world.run("a", peak_allocated_bytes=600 * 2**20)
    assert ran.memory.mode == "analytical"
    await world.tell(world.one)
    for number in range(2, 5):
        await world.run(f"job-{number}", peak_allocated_bytes=600 * 2**20)
        await world.tell(world.one)
    after = await ask(world.one)
    assert (after.memory.mode, after.memory.runs) == ("learned", 4)
    closer = abs(after.memory.allocated.expected - 600 * 2**20)
    assert closer < 0.3 * abs(ran.memory.allocated.expected - 600 * 2**20)
    assert after.memory.allocated.high >= 600 * 2**20
    assert (await ask(world.other)).memory.runs == 0
    await world.other.refresh()
    assert await ask(world.other) == after


async def test_a_run_is_learned_once_whoever_hears_of_it(world):
    await world.run("a", peak_allocated_bytes=600 * 2**20, tokens_per_second=1000.0)
    for marp in (world.one, world.other, world.one):
        await world.tell(marp)
    assert (await ask(world.one)).memory.runs == 1
    assert (await ask(world.other)).memory.runs == 1
    count = "frenzy_marp_prediction_error_ratio_count"
    assert world.value(count, quantity="memory", framework="script") == 1
    assert world.value(count, quantity="step", framework="script") == 1


async def test_a_script_teaches_nothing_about_the_trainer(world):
    await world.run("a", peak_allocated_bytes=900 * 2**20)
    await world.tell(world.one)
    built_in = {k: v for k, v in SCRIPT.items() if k not in ("entrypoint", "workdir")}
    assert (await ask(world.one, built_in)).memory.runs == 0


async def test_an_out_of_memory_is_learned_before_the_job_is_planned_again(world):
    await world.node(mib=700)
    ran = await world.run(
        "a",
        ends=JobState.SUBMITTED,
        exit_code=1,
        reason="CudaOutOfMemory",
        last_step=None,
        peak_allocated_bytes=650 * 2**20,
    )
    await world.plan()  # before any event
    (group,) = await world.store.run_groups(0)
    assert group.runs[0]["ending"] == "oom"
    again = await ask(world.other)
    await world.other.refresh()
    assert (await ask(world.other)).memory.allocated.expected > again.memory.allocated.expected
    assert again.memory.allocated.expected == ran.memory.allocated.expected


async def test_jobs_that_wait_are_planned_again_when_their_like_ran_out(world):
    await world.node(mib=700)
    document = parse_spec(SCRIPT).model_dump(mode="json")
    await world.store.submit("submit:waits", submission("waits", spec=document))
    await world.plan()
    before = await world.store.plans("waits")
    world.clock.advance(1)
    await world.run("a", exit_code=1, reason="CudaOutOfMemory", peak_allocated_bytes=650 * 2**20)
    await world.tell(world.one)
    await world.one.refresh()
    after = await world.store.plans("waits")
    assert (before.learned_ms, after.learned_ms > 0) == (0, True)
    assert after.plans != before.plans
    version = (await world.store.job("waits")).version
    await world.other.refresh()
    await world.one.refresh()
    assert (await world.store.plans("waits"), (await world.store.job("waits")).version) == (
        after,
        version,
    )


async def test_what_went_well_leaves_waiting_jobs_alone(world):
    document = parse_spec(SCRIPT).model_dump(mode="json")
    await world.store.submit("submit:waits", submission("waits", spec=document))
    await world.plan()
    before = await world.store.plans("waits")
    await world.run("a", peak_allocated_bytes=650 * 2**20)
    await world.tell(world.one)
    await world.one.refresh()
    assert await world.store.plans("waits") == before


@pytest.mark.parametrize(
    "outcome",
    [
        {"reason": "ByUser", "exit_code": 143, "last_step": 1, "peak_allocated_bytes": 5},
        {"reason": "NodeLost", "exit_code": None, "last_step": None},
    ],
)
async def test_an_attempt_that_was_cut_short_is_not_noted(world, outcome):
    await world.run("a", **outcome)
    await world.tell(world.one)
    assert await world.store.run_groups(0) == ()


async def test_a_job_that_cannot_be_read_holds_up_nothing(world, caplog):
    await world.run("a", peak_allocated_bytes=5)
    world.store._tables.documents["spec", "a"] = {"model": 5}  # noqa: SLF001 - as an older one wrote
    await world.tell(world.one)
    assert "nothing is learned from job a" in caplog.text


async def test_what_is_kept_is_bounded(world):
    learner = Learner(state=world.store, metrics=Metrics(configure("m", MarpSettings()).registry))
    await world.run("a", peak_allocated_bytes=600 * 2**20)
    await world.tell(world.one)
    (group,) = await world.store.run_groups(0)
    for number in range(KEEP + 5):
        run = {**group.runs[0], "id": f"more-{number}#1", "time_ms": number}
        await world.store.note_run(group.name, run["id"], run, keep=KEEP, groups=GROUPS)
    for number in range(GROUPS + 5):
        await world.store.note_run(f"g{number}", "x", group.runs[0], keep=KEEP, groups=GROUPS)
        if number == GROUPS // 2:
            await learner.refresh()
    await learner.refresh()
    assert len(learner.experience) == GROUPS
    fresh = Learner(state=world.store, metrics=learner.metrics)
    await fresh.refresh()
    assert len(fresh.experience) == len(learner.experience)


async def drifting(marp):
    """What MARP says of drift when somebody asks."""
    return DriftList.decode(await marp.on_drifts(Message(subject="", payload=b"{}"))).drifts


async def test_drift_is_said_once_and_its_end_too(world, caplog):
    caplog.set_level(logging.INFO)
    for number in range(8):
        await world.run(f"job-{number}", peak_allocated_bytes=600 * 2**20 * (1 + number))
        await world.tell(world.one)
    assert caplog.text.count("memory predictions drift") == 1
    assert world.value("frenzy_marp_prediction_drifts") == 1
    (told,) = await drifting(world.one)
    assert told.runs >= told.outside > 0
    shown = (await ask(world.one)).memory.allocated.expected
    for number in range(8, 28):
        await world.run(f"job-{number}", peak_allocated_bytes=shown)
        await world.tell(world.one)
        shown = (await ask(world.one)).memory.allocated.expected
    assert "within their band again" in caplog.text
    assert world.value("frenzy_marp_prediction_drifts") == 0
    assert await drifting(world.one) == ()
