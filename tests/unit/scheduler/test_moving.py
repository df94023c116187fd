"""A job that is to move trains on until its next attempt is ready: the whole service."""

import pytest
from tests.support.recovery import beat_all, reconcile, restore
from tests.support.scheduler import Bench, cancel_job, make_scheduler
from tests.support.simulation import a_plan

from frenzy_shared.domain.job import JobState, RankOutcome, StopReason
from frenzy_shared.messages.v1 import AttemptPhase, EvidenceKind, Phase
from frenzy_shared.state.port import Change, Timer

SLOW = a_plan("slow", "t4", 1, 4.0)
FAST = a_plan("fast", "rtx", 2, 1.0)


async def train(bench, job, step=1):
    for _ in range(3):
        await bench.obey_all()
        await bench.turn()
    await bench.agents["slow"].say(EvidenceKind.PROGRESSED, job, 1, step=step, loss=2.0)
    await bench.turn()


async def get_ready(bench):
    """Let the nodes of the next attempt prepare, start their ranks and say that these wait."""
    for _ in range(2):
        await bench.obey_all()
        await bench.turn()


async def save_and_go(bench, job, attempt=1, step=7):
    agent = bench.agents["slow"]
    await agent.say(EvidenceKind.CHECKPOINTED, job, attempt, step=step)
    outcome = RankOutcome(rank=0, exit_code=143, reason=StopReason.PREEMPTED, last_step=step)
    await agent.say(EvidenceKind.EXITED, job, attempt, outcomes=(outcome,))
    agent.held[job, attempt] = AttemptPhase.CLEAN
    await agent.say(EvidenceKind.CLEAN, job, attempt)
    await bench.turn()


def orders(desired, job="job"):
    return {one.attempt: one for one in desired.attempts if one.job == job}


async def owners(bench):
    return (await bench.store.cluster()).owners


@pytest.fixture
async def bench():
    """A job of the built-in trainer on a slow device; two fast ones have just become idle."""
    async with Bench(policy="frenzy", min_run_factor=0, restart_prior_s=20) as bench:
        await bench.node("slow", kind="t4")
        await bench.queue("job", SLOW, FAST, max_steps=100_000)
        await bench.turn()
        await train(bench, "job")
        await bench.node("fast", devices=2)
        await bench.turn()
        yield bench


async def test_the_next_attempt_claims_its_devices_while_the_job_trains(bench):
    record = await bench.job("job")
    assert (record.state, record.attempt, record.owned_devices) == ("RUNNING", 1, 3)
    owned = await owners(bench)
    assert owned == {"slow/t4-0": "job#1", "fast/rtx-0": "job#2", "fast/rtx-1": "job#2"}
    assert record.message.startswith("attempt 2 gets ready on 2 x rtx on fast while it trains")
    assert "2 x rtx instead of 1 x t4" in record.message
    assert (await bench.events("job"))[-1] == "moving"
    order = orders(await bench.agents["fast"].beat())[2]
    assert (order.phase, order.warm, order.resume_step) == (Phase.PREPARE, False, None)
    assert orders(await bench.agents["slow"].beat())[1].phase is Phase.GO


async def test_it_is_stopped_only_when_all_ranks_of_the_next_attempt_wait(bench):
    fast = bench.agents["fast"]
    await fast.obey(await fast.beat())
    await bench.turn()
    assert await bench.state("job") == "RUNNING"
    order = orders(await fast.beat())[2]
    assert (order.phase, order.warm, order.rendezvous) == (Phase.PREPARE, True, "127.0.1.1:29500")
    await fast.obey(await fast.beat())
    await bench.turn()
    record = await bench.job("job")
    assert (record.state, record.reason, record.preemptions) == ("STOPPING", "Preempted", 1)
    assert orders(await bench.agents["slow"].beat())[1].phase is Phase.STOP


async def test_the_next_attempt_goes_on_from_the_checkpoint_without_a_queue(bench):
    await get_ready(bench)
    bench.clock.advance(2.0)
    await save_and_go(bench, "job")
    record = await bench.job("job")
    assert (record.state, record.attempt, record.placement.kind) == ("STARTING", 2, "rtx")
    assert (record.successor, record.retries, record.owned_devices) == (None, 0, 2)
    order = orders(await bench.agents["fast"].beat())[2]
    assert (order.phase, order.resume_step) == (Phase.GO, 7)
    assert (await owners(bench))["slow/t4-0"] == ""
    await bench.obey_all()
    bench.clock.advance(1.0)
    await bench.agents["fast"].say(EvidenceKind.PROGRESSED, "job", 2, step=8, loss=1.0)
    await bench.turn()
    record = await bench.job("job")
    assert (record.state, record.move_ms, record.save_ms) == ("RUNNING", 3000, 2000)
    assert record.launch_ms == 0  # of the first attempt: a warm launch tells nothing of a cold one
    text = bench.scheduler._metrics._restart_s.labels(way="warm")._sum.get()
    assert text == 3.0


async def test_its_own_devices_go_to_whom_they_are_for_once_it_has_left(bench):
    await bench.queue("next", SLOW, max_steps=10)
    await bench.turn()
    assert (await bench.store.pending("next"))["reason"] == "WaitingForPreemptedJobs"
    await get_ready(bench)
    await save_and_go(bench, "job")
    assert await bench.state("next") == "RESERVED"


async def test_a_next_attempt_that_is_refused_leaves_the_job_where_it_is(bench):
    fast = bench.agents["fast"]
    await fast.say(EvidenceKind.REFUSED, "job", 2, reason="LaunchRefused", message="no space")
    await bench.turn()
    record = await bench.job("job")
    assert (record.state, record.attempt, record.retries) == ("RUNNING", 1, 0)
    assert "fast refused: no space; training goes on" in record.message
    assert orders(await fast.beat())[2].phase is Phase.STOP
    await bench.obey_all()
    await bench.turn()
    assert (await owners(bench))["fast/rtx-0"] == ""
    assert (await bench.job("job")).owned_devices == 1


async def test_a_job_whose_next_attempt_failed_rests_before_it_is_moved_again(bench):
    fast = bench.agents["fast"]
    await fast.say(EvidenceKind.REFUSED, "job", 2, reason="LaunchRefused", message="no space")
    await bench.obey_all()
    await bench.turn()
    await bench.pass_time(590, beating=("slow", "fast"), step_s=10)
    assert (await bench.job("job")).successor.attempt == 2
    await bench.pass_time(30, beating=("slow", "fast"), step_s=10)
    record = await bench.job("job")
    assert (record.state, record.attempt, record.successor.attempt) == ("RUNNING", 1, 3)


async def test_one_that_is_not_ready_in_time_is_given_up(bench):
    await bench.pass_time(310, beating=("slow", "fast"), step_s=10)
    record = await bench.job("job")
    assert (record.state, record.successor.dropped) == ("RUNNING", "not ready after 300 s")


async def test_ranks_that_die_while_they_get_ready_cost_no_retry(bench):
    await bench.obey_all()
    outcome = RankOutcome(
        rank=1, exit_code=1, reason=StopReason.CUDA_OUT_OF_MEMORY, message="96 MiB too many"
    )
    await bench.agents["fast"].say(EvidenceKind.EXITED, "job", 2, outcomes=(outcome,))
    await bench.turn()
    record = await bench.job("job")
    assert (record.state, record.attempt, record.retries) == ("RUNNING", 1, 0)
    assert record.successor.dropped == "rank 1 on fast: 96 MiB too many"


async def test_a_cancelled_job_gives_both_attempts_devices_back(bench):
    await bench.obey_all()
    await bench.turn()
    await cancel_job(bench.store, "job")
    assert orders(await bench.agents["fast"].beat())[2].phase is Phase.STOP
    for _ in range(3):
        await bench.obey_all()
        await bench.turn()
    assert await bench.state("job") == "CANCELLED"
    assert set((await owners(bench)).values()) == {""}


async def test_a_job_that_ends_while_the_next_attempt_gets_ready_has_succeeded(bench):
    await bench.obey_all()
    await bench.turn()
    slow = bench.agents["slow"]
    await slow.exit("job", 1, [0], StopReason.COMPLETED)
    await slow.say(EvidenceKind.CLEAN, "job", 1)
    await bench.turn()
    assert await bench.state("job") == "STOPPING"  # until its other devices are free as well
    await bench.obey_all()
    await bench.turn()
    assert await bench.state("job") == "SUCCEEDED"
    assert set((await owners(bench)).values()) == {""}


async def test_a_node_that_is_lost_while_its_ranks_get_ready_costs_the_job_nothing(bench):
    await bench.node("other", kind="p4")  # one silent node of two would be the leader's fault
    await bench.obey_all()
    await bench.turn()
    await bench.pass_time(62, beating=("slow", "other"), step_s=3)
    record = await bench.job("job")
    assert (record.state, record.attempt, record.retries) == ("RUNNING", 1, 0)
    assert "node fast is lost" in record.successor.dropped
    await bench.pass_time(320, beating=("slow", "other"), step_s=3)
    assert (await owners(bench))["fast/rtx-0"] == "!quarantine:lost job#2"
    assert (await bench.job("job")).owned_devices == 1


async def test_a_next_attempt_that_is_lost_while_the_job_saves_costs_it_the_head_start_only(bench):
    await get_ready(bench)
    await bench.agents["fast"].say(EvidenceKind.CLEAN, "job", 2)
    await save_and_go(bench, "job")
    record = await bench.job("job")
    assert (record.state, record.attempt, record.retries) == ("RESERVED", 3, 0)
    assert record.checkpoint_step == 7


async def test_a_checkpoint_of_another_plan_than_expected_is_not_gone_on_from(bench):
    """The job could not save, and its last checkpoint is one that it had resumed from itself."""
    shape = {"zero_stage": 2, "ranks": 9, "precision": "bf16"}
    record = await bench.job("job")
    patch = {"checkpoint_step": 3, "checkpoint_shape": shape}
    await bench.store.apply("older", Change(entity="job:job", patch=patch))
    assert record.state is JobState.RUNNING
    await get_ready(bench)
    slow = bench.agents["slow"]
    outcome = RankOutcome(rank=0, exit_code=-9, reason=StopReason.PREEMPTED)
    await slow.say(EvidenceKind.EXITED, "job", 1, outcomes=(outcome,))
    await slow.say(EvidenceKind.CLEAN, "job", 1)
    await bench.turn()
    record = await bench.job("job")
    assert record.state is JobState.STOPPING
    assert "made under ZeRO-2 on 9 ranks" in record.successor.dropped


async def test_a_store_that_is_rebuilt_knows_the_next_attempt_and_what_it_holds(bench):
    await bench.obey_all()
    await bench.turn()
    before, held = await bench.job("job"), await owners(bench)
    await restore(bench, None)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    assert await bench.job("job") == before
    assert await owners(bench) == held
    assert "warm:job:2" in bench.store._tables.timers
    await beat_all(bench)
    await get_ready(bench)
    await save_and_go(bench, "job")
    record = await bench.job("job")
    assert (record.attempt, record.retries, record.successor) == (2, 0, None)


async def test_the_next_leader_goes_on_with_a_move(bench):
    await bench.obey_all()
    await bench.turn()
    await bench.scheduler.leadership.resign()
    other = make_scheduler(
        bench.store, bench.bus, bench.clock, instance="s2", policy="frenzy", min_run_factor=0
    )
    bench.clock.advance(5)
    await other._lead()
    assert other.leadership.held
    await other._schedule()
    record = await bench.job("job")
    assert (record.state, record.successor.attempt, record.successor.dropped) == ("RUNNING", 2, "")


async def test_a_drained_node_gives_up_who_gets_ready_there(bench):
    await bench.obey_all()
    await bench.turn()
    node = await bench.store.node("fast")
    drained = Change(
        entity="node:fast",
        expect_version=node.version,
        patch={"state": "DRAINING", "drain": "repair", "reason": "repair"},
        set_timers=[Timer(id="drain:fast:0", after_s=1)],
    )
    assert (await bench.store.apply("drain", drained)).ok
    await bench.pass_time(3, beating=("slow", "fast"))
    record = await bench.job("job")
    assert (record.state, record.successor.dropped) == ("RUNNING", "fast is drained: repair")


async def test_a_job_whose_devices_another_one_gets_stops_first():
    """Else that one would wait for as long as the first takes to get ready."""
    async with Bench(policy="frenzy", min_run_factor=0, restart_prior_s=1) as bench:
        await bench.node("slow", kind="t4")
        await bench.queue("job", SLOW, FAST, max_steps=100_000)
        await bench.turn()
        await train(bench, "job")
        await bench.queue("next", SLOW, max_steps=90_000)
        await bench.node("fast", devices=2)
        await bench.turn()
        record = await bench.job("job")
        assert (record.state, record.successor) == ("STOPPING", None)
        assert (await bench.store.pending("next"))["reason"] == "WaitingForPreemptedJobs"


@pytest.mark.parametrize(
    "spec",
    [
        {"entrypoint": {"script": "train.py"}, "elastic": "elastic", "workdir": "node:/code"},
        {"secrets": {"TOKEN": "hub"}},
    ],
)
async def test_who_cannot_wait_before_a_first_step_is_stopped_first(spec):
    async with Bench(policy="frenzy", min_run_factor=0, restart_prior_s=1) as bench:
        await bench.node("slow", kind="t4")
        await bench.queue("job", SLOW, FAST, max_steps=100_000, **spec)
        await bench.turn()
        await train(bench, "job")
        await bench.agents["slow"].say(EvidenceKind.CHECKPOINTED, "job", 1, step=1)
        await bench.node("fast", devices=2)
        await bench.turn()
        record = await bench.job("job")
        assert (record.state, record.reason) == ("STOPPING", "Preempted")
        assert record.successor is None


async def test_a_move_onto_own_devices_stops_the_job_first():
    async with Bench(policy="frenzy", min_run_factor=0, restart_prior_s=1) as bench:
        await bench.node("slow", devices=2, kind="t4")
        await bench.queue("first", SLOW, max_steps=50_000, preemptible=False)
        await bench.turn()
        both = a_plan("both", "t4", 2, 1.0)
        await bench.queue("job", SLOW, both, max_steps=100_000)
        await bench.turn()
        await train(bench, "job")
        await bench.agents["slow"].exit("first", 1, [0], StopReason.COMPLETED)
        await bench.agents["slow"].say(EvidenceKind.CLEAN, "first", 1)
        await bench.turn()
        record = await bench.job("job")
        assert (record.state, record.successor) == ("STOPPING", None)
