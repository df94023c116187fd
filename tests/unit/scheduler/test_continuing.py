"""Plans that a job cannot go on with are refused before it is stopped for them."""

from dataclasses import replace

import pytest
from tests.support.scheduler import SPEC, Bench
from tests.support.scheduling import job, plan

from frenzy_scheduler.continuing import continuable, may_be_stopped
from frenzy_shared.domain.continuation import shape_of
from frenzy_shared.domain.job import JobState
from frenzy_shared.domain.plan import Precision
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.spec import parse_spec
from frenzy_shared.messages.v1 import EvidenceKind
from frenzy_shared.state.port import Change

BUILT_IN = parse_spec(SPEC)
SCRIPT = {**SPEC, "entrypoint": {"script": "a.py"}, "workdir": "node:/w"}


def with_shape(name, kind="rtx", ranks=1, stage=2, precision=Precision.BF16):
    made = plan(name, kind, ranks)
    parallelism = replace(
        made.parallelism, zero_stage=stage, data=ranks, tensor=1, pipeline=1, precision=precision
    )
    return replace(made, parallelism=parallelism)


OWN = with_shape("own", ranks=2)
WIDER = with_shape("wider", ranks=4, stage=1)
SHARDED = with_shape("sharded", ranks=2, stage=3)
FLOAT = with_shape("float", ranks=2, precision=Precision.FP32)
MOVED = with_shape("moved", "t4", ranks=2)
PLANS = (OWN, WIDER, SHARDED, FLOAT, MOVED)
SHAPE = shape_of(OWN.parallelism)


def names(plans):
    return [one.id for one in plans]


def kept(record, spec):
    return names(continuable(PLANS, record, spec)[0])


def test_a_new_job_is_free():
    assert kept(job(), BUILT_IN) == names(PLANS)
    assert kept(job(), parse_spec(SCRIPT)) == names(PLANS)


def test_a_running_job_can_change_only_to_what_its_next_checkpoint_allows():
    record = job(JobState.RUNNING, attempt=1, shape=SHAPE)
    assert kept(record, BUILT_IN) == ["own", "wider", "sharded", "moved"]


def test_a_waiting_job_is_bound_by_its_checkpoint_not_by_its_last_attempt():
    record = job(attempt=2, shape=shape_of(SHARDED.parallelism))
    assert kept(record, BUILT_IN) == names(PLANS)
    saved = replace(record, checkpoint_step=40, checkpoint_shape=SHAPE)
    assert kept(saved, BUILT_IN) == ["own", "wider", "sharded", "moved"]
    afresh = parse_spec({**SPEC, "checkpoint": {"resume": False}})
    assert kept(saved, afresh) == names(PLANS)


@pytest.mark.parametrize(
    ("elastic", "waiting", "running"),
    [
        (None, ["same", "moved"], ["same", "moved"]),
        ("fixed", ["same", "moved"], ["same", "moved"]),
        ("batch_from_plan", ["same", "moved", "other"], ["same", "moved"]),
        ("elastic", ["same", "moved", "other"], ["same", "moved", "other"]),
    ],
)
def test_a_script_gets_what_it_declared(elastic, waiting, running):
    plans = (with_shape("same", ranks=2), with_shape("moved", "t4", 2), with_shape("other"))
    spec = parse_spec({**SCRIPT, **({"elastic": elastic} if elastic else {})})
    record = job(attempt=1, shape=SHAPE)
    assert names(continuable(plans, record, spec)[0]) == waiting
    placed = replace(record, state=JobState.RUNNING)
    assert names(continuable(plans, placed, spec)[0]) == running


def test_a_refused_plan_says_why():
    record = job(attempt=1, checkpoint_step=40, checkpoint_shape=SHAPE, shape=SHAPE)
    _, refused = continuable((FLOAT,), record, BUILT_IN)
    assert refused[0].option == "2 x rtx, ZeRO-2 on 2 ranks in fp32"
    assert refused[0].reason == (
        "cannot go on from its checkpoint of step 40, made under ZeRO-2 on 2 ranks in bf16"
    )
    _, refused = continuable((WIDER,), record, parse_spec(SCRIPT))
    assert refused[0].reason.endswith("; the script is elastic: fixed")


def test_who_may_be_stopped():
    record = job(JobState.RUNNING)
    assert may_be_stopped(record, BUILT_IN, 30.0)
    assert not may_be_stopped(record, parse_spec({**SPEC, "preemptible": False}), 30.0)
    assert not may_be_stopped(record, parse_spec({**SPEC, "checkpoint": {"resume": False}}), 30.0)
    script = parse_spec(SCRIPT)
    assert not may_be_stopped(record, script, 30.0)
    assert may_be_stopped(replace(record, checkpoint_step=3), script, 30.0)
    assert may_be_stopped(record, parse_spec({**SCRIPT, "preemptible": True}), 30.0)


@pytest.mark.parametrize(("save_ms", "expected"), [(29_999, True), (30_000, False)])
def test_who_could_not_save_within_the_grace_is_not_asked_again(save_ms, expected):
    record = job(JobState.RUNNING, save_ms=save_ms)
    assert may_be_stopped(record, BUILT_IN, 30.0) is expected
    assert may_be_stopped(record, parse_spec({**SPEC, "preemptible": True}), 30.0)


async def test_a_job_is_not_resized_to_what_it_cannot_go_on_with():
    """A plan in fp32 is ten times faster and its devices are idle; the job stays where it is."""
    fast = with_shape("fast", "t4", precision=Precision.FP32)
    fast = replace(fast, speed=replace(fast.speed, step_s=0.1))
    slow = with_shape("slow")
    slow = replace(slow, speed=replace(slow.speed, step_s=1.0))
    async with Bench(policy="frenzy", min_run_factor=0) as bench:
        agent = await bench.node("n1")
        await bench.queue("j", slow, fast, max_steps=100_000)
        await bench.turn()
        for _ in range(3):
            await bench.obey_all()
            await bench.turn()
        await agent.say(EvidenceKind.PROGRESSED, "j", step=1, loss=2.0)
        await bench.node("n2", kind="t4")
        await bench.turn()
        assert await bench.state("j") == "RUNNING"
        assert (await bench.job("j")).shape == shape_of(slow.parallelism)


async def test_a_job_without_a_plan_to_go_on_with_waits_and_says_so():
    async with Bench() as bench:
        await bench.queue("j", FLOAT)
        await bench.node("n1", devices=2)
        patch = {"attempt": 1, "checkpoint_step": 7, "checkpoint_shape": to_json(SHAPE)}
        assert (await bench.store.apply("saved", Change(entity="job:j", patch=patch))).ok
        await bench.turn()
        assert await bench.state("j") == "QUEUED"
        waits = await bench.store.pending("j")
        assert waits["reason"] == "NoFeasiblePlan"
        assert "cannot go on from its checkpoint of step 7" in waits["nearest"]
