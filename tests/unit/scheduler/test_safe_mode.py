"""A store that was restored from an old copy, or emptied: noticed, waited for, put right."""

from collections.abc import AsyncIterator

import pytest
from tests.support.recovery import beat_all, finish, reconcile, restore, run, saved, why
from tests.support.scheduler import Bench, make_scheduler, submit_job
from tests.support.scheduling import plan

from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import SafeMode
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import AttemptPhase, EvidenceKind, Phase


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as made:
        yield made


# -- noticing -----------------------------------------------------------------------------------


async def test_an_old_copy_is_noticed_and_nothing_is_placed(bench):
    await bench.node("n1", 2)
    copied = saved(bench)
    await run(bench, "j1")
    await restore(bench, copied)
    assert "it is an old copy" in why(bench)
    assert (await bench.store.health()).safe_mode == why(bench)
    with pytest.raises(SafeMode):
        await submit_job(bench.store, "j2")
    assert await bench.job("j1") is None


async def test_an_emptied_store_is_noticed(bench):
    await bench.node("n1")
    await bench.turn()
    await restore(bench, None)
    assert "emptied or replaced" in why(bench)


async def test_a_copy_whose_lease_lives_is_noticed_too(bench):
    await bench.node("n1")
    await bench.turn()
    copied = saved(bench)
    await bench.queue("j1")
    await bench.turn()
    await bench.turn()
    bench.store._tables = copied
    copied.clock = bench.clock
    await bench.scheduler._lead()
    assert "it is an old copy" in why(bench)


async def test_a_copy_that_nobody_has_looked_at_yet_ends_nothing(bench):
    """Between a copy's being put back and the leader's next look, a node speaks."""
    agent = await bench.node("n1")
    await bench.turn()
    copied = saved(bench)
    await run(bench, "j1")
    await bench.scheduler._lead()
    bench.store._tables = copied
    copied.clock = bench.clock
    desired = await agent.beat()
    assert "it is an old copy" in why(bench)
    assert (desired.fenced, desired.complete, desired.attempts) == (False, False, ())


async def test_what_a_sound_store_does_not_know_is_ended(bench):
    agent = await bench.node("n1")
    agent.held["j9", 1] = AttemptPhase.STARTED
    desired = await agent.beat()
    assert not why(bench)
    assert desired.complete


async def test_a_node_that_knows_better_is_believed_and_keeps_what_it_runs(bench):
    """The event stream was lost too: the agents are the only witnesses."""
    agent = await bench.node("n1")
    await run(bench, "j1")
    bench.bus.broker._streams.clear()
    await bench.bus.ensure_streams()
    await restore(bench, None)
    assert not why(bench)
    desired = await agent.beat()
    assert "node n1 has registered 1 times, and the store knows of 0" in why(bench)
    assert (desired.fenced, desired.complete, desired.attempts) == (False, False, ())
    assert desired.epoch == agent.epoch


async def test_a_new_leader_finds_the_store_in_safe_mode(bench):
    await bench.store.enter_safe_mode("an old copy")
    other = make_scheduler(bench.store, bench.bus, bench.clock, instance="s2")
    bench.clock.advance(5)
    await other._lead()
    assert other.leadership.held
    assert other._safe_mode.why == "an old copy"
    assert not other._in_charge


async def test_an_ordinary_change_of_leaders_is_no_alarm(bench):
    await bench.node("n1")
    await run(bench, "j1")
    await bench.turn()
    other = make_scheduler(bench.store, bench.bus, bench.clock, instance="s2")
    bench.clock.advance(5)
    await other._lead()
    assert (other.leadership.held, other._safe_mode.why) == (True, "")


# -- waiting ------------------------------------------------------------------------------------


async def test_evidence_waits_unread_until_the_store_is_right(bench):
    agent = await bench.node("n1")
    await run(bench, "j1")
    copied = saved(bench)
    await bench.turn()
    await bench.queue("j2")
    await bench.turn()
    await restore(bench, copied)
    await agent.exit("j1", 1, [0], StopReason.COMPLETED)
    await agent.say(EvidenceKind.CLEAN, "j1")
    await bench.pass_time(200, beating=["n1"], step_s=5)
    assert await bench.bus.last_sequence(subjects.DLQ_STREAM) == 0
    assert await bench.state("j1") == "RUNNING"
    assert (await reconcile(bench, apply=True)).applied
    await beat_all(bench)
    await bench.turn()
    await bench.turn()
    assert await bench.state("j1") == "SUCCEEDED"


async def test_no_node_is_lost_and_no_timer_fires_meanwhile(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await bench.turn()
    await restore(bench, None)
    await beat_all(bench)
    await bench.pass_time(400, beating=["n1", "n2"], step_s=5)
    assert "n3" in bench.scheduler._safe_mode.inventories
    assert (await bench.store.cluster()).nodes == ()


# -- putting right ------------------------------------------------------------------------------


async def test_an_old_copy_gets_what_it_missed_and_nothing_runs_twice(bench):
    for name in ("n1", "n2"):
        await bench.node(name)
    await run(bench, "j1")
    copied = saved(bench)
    await finish(bench, "j1")
    await run(bench, "j2")
    await bench.turn()
    before = {job: await bench.job(job) for job in ("j1", "j2")}
    await restore(bench, copied)
    await beat_all(bench)
    shown = await reconcile(bench)
    assert not shown.applied
    assert shown.safe_mode
    told = {
        d.entity: (d.store.partition(",")[0], d.repair.partition(",")[0]) for d in shown.differences
    }
    assert told == {
        "job:j1": ("RUNNING", "becomes SUCCEEDED"),
        "job:j2": ("unknown", "becomes RUNNING"),
    }
    assert await bench.state("j1") == "RUNNING"
    assert (await reconcile(bench, apply=True)).applied
    assert not why(bench)
    assert {job: await bench.job(job) for job in ("j1", "j2")} == before
    await beat_all(bench)
    assert (await bench.store.node("n1")).state is NodeState.UP
    await finish(bench, "j2")
    assert (await bench.job("j2")).attempt == 1
    assert set((await bench.store.cluster()).owners.values()) == {""}
    ids = [m.headers["Nats-Msg-Id"] for m in bench.bus.broker.messages(subjects.EVENTS_STREAM)]
    assert len(ids) == len(set(ids))


async def test_an_empty_store_is_rebuilt_from_events(bench):
    await bench.node("n1", 2)
    await run(bench, "j1")
    await finish(bench, "j1")
    await run(bench, "j2")
    await submit_job(bench.store, "j3")
    await bench.turn()
    before = {job: await bench.job(job) for job in ("j1", "j2", "j3")}
    timeline = await bench.store.timeline("j2")
    await restore(bench, None)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    assert {job: await bench.job(job) for job in before} == before
    assert (await bench.store.spec("j3"))["model"] == "gpt2"
    assert await bench.store.timeline("j2") == timeline
    assert [timer for timer in bench.store._tables.timers if "j3" in timer] == ["replan:j3:0"]
    await beat_all(bench)
    await submit_job(bench.store, "j4")
    assert (await bench.job("j4")).sequence == 4


async def test_an_attempt_that_nobody_remembers_ends_before_another_begins(bench):
    """The placement was never published: only the node knows."""
    agent = await bench.node("n1", 2)
    await bench.queue("j1", plan("p1", "rtx", 1))
    await bench.turn()
    copied = saved(bench)
    lost = bench.bus.broker._streams[subjects.EVENTS_STREAM]
    kept = len(lost.messages)
    for _ in range(3):
        await bench.turn()
        await bench.obey_all()
    del lost.messages[kept:]
    bench.scheduler._safe_mode._seen = None
    await restore(bench, copied)
    await bench.store.enter_safe_mode("somebody said so")
    await bench.turn()
    record = await bench.job("j1")
    held = dict.fromkeys([("j1", record.attempt + 1)], next(iter(agent.held.values())))
    agent.held = held
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    await agent.obey(await agent.beat())
    await bench.turn()
    record = await bench.job("j1")
    assert (record.state, record.attempt) == ("QUEUED", next(iter(held))[1])
    assert "ends before another begins" in record.message
    await bench.pass_time(350, beating=["n1"], step_s=5)
    assert await bench.state("j1") == "QUEUED"
    await bench.pass_time(15, beating=["n1"])
    assert await bench.state("j1") == "RESERVED"


async def test_nothing_is_put_right_while_a_node_is_silent(bench):
    for name in ("n1", "n2"):
        await bench.node(name)
    await bench.turn()
    await restore(bench, None)
    await bench.agents["n1"].beat()
    result = await reconcile(bench, apply=True)
    assert (result.applied, result.silent) == (False, ("n2",))
    assert "n2 did not say yet" in result.refused
    await bench.agents["n2"].beat()
    assert (await reconcile(bench, apply=True)).applied


async def test_a_node_that_is_gone_is_given_up_on_an_administrators_word(bench):
    for name in ("n1", "n2"):
        await bench.node(name)
    await run(bench, "j1")
    (gone,) = (await bench.job("j1")).placement.nodes
    (left,) = {"n1", "n2"} - {gone}
    await bench.turn()
    await restore(bench, None)
    await bench.agents[left].beat()
    refused = (await reconcile(bench, apply=True)).refused
    assert f"frenzy admin reconcile --apply --dead {gone}" in refused
    await bench.pass_time(60, beating=[left], step_s=1)
    shown = await reconcile(bench, dead=(gone,))
    assert (shown.applied, shown.silent, shown.refused) == (False, (), "")
    assert f"node:{gone}" in {difference.entity for difference in shown.differences}
    assert (await reconcile(bench, apply=True, dead=(gone,))).applied
    node = await bench.store.node(gone)
    assert (node.state, node.reason) == (NodeState.LOST, "confirmed dead by ann")
    await bench.pass_time(5, beating=[left])
    record = await bench.job("j1")  # its plan came back with it, so it starts elsewhere
    assert (record.state, record.attempt, record.placement.nodes) == ("RESERVED", 2, (left,))
    assert (await bench.store.node(left)).state is NodeState.UP
    owners = (await bench.store.cluster()).owners
    assert [owner for key, owner in owners.items() if key.startswith(gone)] == [""]


async def test_a_node_that_was_heard_lately_is_not_taken_for_dead(bench):
    for name in ("n1", "n2"):
        await bench.node(name)
    await bench.turn()
    await restore(bench, None)
    await bench.pass_time(60, beating=["n1", "n2"], step_s=1)
    for dead, text in (("n2", "n2 may be alive"), ("n9", "no node is called n9")):
        for apply in (False, True):
            result = await reconcile(bench, apply=apply, dead=(dead,))
            assert (result.applied, text in result.refused) == (False, True)
    assert bench.scheduler._safe_mode.why


async def test_what_the_leader_could_not_hear_is_no_silence(bench):
    for name in ("n1", "n2"):
        await bench.node(name)
    await bench.turn()
    await restore(bench, None)
    await bench.pass_time(60, beating=["n1"], step_s=1)
    bench.clock.advance(600)  # the leader was frozen
    await bench.turn()
    assert "n2 may be alive" in (await reconcile(bench, apply=True, dead=("n2",))).refused


async def test_a_node_that_died_after_it_spoke_holds_nothing(bench):
    agent = await bench.node("n1")
    await bench.turn()
    await restore(bench, None)
    agent.held = {("ghost", 7): AttemptPhase.STARTED}
    await agent.beat()
    await bench.pass_time(60, step_s=1)
    assert (await reconcile(bench, apply=True, dead=("n1",))).applied
    assert set((await bench.store.cluster()).owners.values()) == {""}


async def test_without_safe_mode_there_is_nothing_to_put_right(bench):
    result = await reconcile(bench, apply=True)
    assert (result.safe_mode, result.count, result.applied) == ("", 0, False)


async def test_an_agent_that_restarts_in_safe_mode_keeps_its_job_through_the_repair(bench):
    agent = await bench.node("n1")
    await agent.join()
    await agent.join()
    await run(bench, "j1")
    await restore(bench, None)
    agent.epoch = 0
    await beat_all(bench)
    assert agent.epoch > 3
    assert (await reconcile(bench, apply=True)).applied
    desired = await agent.beat()
    assert not desired.fenced
    assert [(part.job, part.phase) for part in desired.attempts] == [("j1", Phase.GO)]
    await finish(bench, "j1")


async def test_the_next_leader_after_a_repair_finds_everything_in_order(bench):
    await bench.node("n1")
    await run(bench, "j1")
    await restore(bench, None)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    await bench.turn()
    other = make_scheduler(bench.store, bench.bus, bench.clock, instance="s2")
    bench.clock.advance(5)
    await other._lead()
    assert (other.leadership.held, other._safe_mode.why) == (True, "")
