"""Drain, strikes and confirm-dead: what an operator and bad nodes do to running jobs."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.scheduler import Bench
from tests.support.scheduling import node, plan

from frenzy_gateway import nodes as operator
from frenzy_scheduler.core.strikes import StrikeRule, is_out, struck
from frenzy_shared.domain.cluster import NodeState, Strike
from frenzy_shared.errors import InvalidState
from frenzy_shared.messages.http import DrainRequest
from frenzy_shared.messages.v1 import EvidenceKind, Phase

RULE = StrikeRule(limit=3, window_s=3600)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as made:
        yield made


async def apply(bench: Bench, change) -> None:
    assert (await bench.store.apply(f"op:{bench.scheduler.ids.new_id()}", change)).ok
    await bench.turn()


async def drain(bench: Bench, name: str, deadline_s: float | None = None) -> None:
    request = DrainRequest(reason="new fan", deadline_s=deadline_s)
    record = await bench.store.node(name)
    await apply(bench, operator.drain_change(record, request, "ann", bench.clock.now_ms()))


async def undrain(bench: Bench, name: str) -> None:
    await apply(bench, operator.undrain_change(await bench.store.node(name), "ann"))


async def confirm_dead(bench: Bench, name: str) -> None:
    await apply(bench, operator.confirm_dead_change(await bench.store.node(name), "ann"))
    bench.clock.advance(1)
    await bench.turn()


async def run(bench: Bench, job: str, ranks: int = 1) -> None:
    await bench.queue(job, plan("p1", "rtx", ranks))
    for _ in range(3):
        await bench.turn()
        await bench.obey_all()
    assert await bench.state(job) == "RUNNING"


async def state_of(bench: Bench, name: str) -> tuple[NodeState, str]:
    record = await bench.store.node(name)
    return record.state, record.reason


# -- drain --------------------------------------------------------------------------------------


async def test_a_draining_node_finishes_its_job_and_gets_no_other(bench):
    await bench.node("n1", 2)
    await run(bench, "j1")
    await drain(bench, "n1")
    await bench.queue("j2")
    await bench.pass_time(120, beating=["n1"], step_s=5)
    assert (await bench.state("j1"), await bench.state("j2")) == ("RUNNING", "QUEUED")
    assert await state_of(bench, "n1") == (NodeState.DRAINING, "drained by ann: new fan")
    await undrain(bench, "n1")
    await bench.turn()
    assert await bench.state("j2") == "RESERVED"
    assert await state_of(bench, "n1") == (NodeState.UP, "")


async def test_at_the_deadline_the_job_checkpoints_and_goes_elsewhere(bench):
    await bench.node("n1")
    await run(bench, "j1")
    await drain(bench, "n1", deadline_s=60)
    await bench.pass_time(58, beating=["n1"])
    assert await bench.state("j1") == "RUNNING"
    await bench.pass_time(4, beating=["n1"])
    record = await bench.job("j1")
    assert (record.state, record.reason) == ("STOPPING", "Drained")
    assert "n1 is drained: drained by ann: new fan; running jobs stop at" in record.message
    desired = await bench.agents["n1"].beat()
    assert [part.phase for part in desired.attempts] == [Phase.STOP]
    await bench.node("n2")
    await bench.agents["n1"].obey(desired)
    await bench.turn()
    record = await bench.job("j1")
    assert (record.placement.nodes, record.attempt, record.retries) == (("n2",), 2, 0)


async def test_an_undrain_takes_the_deadline_back(bench):
    await bench.node("n1")
    await run(bench, "j1")
    await drain(bench, "n1", deadline_s=30)
    await undrain(bench, "n1")
    await bench.pass_time(60, beating=["n1"], step_s=5)
    assert await bench.state("j1") == "RUNNING"
    await drain(bench, "n1", deadline_s=30)
    await drain(bench, "n1")
    await bench.pass_time(60, beating=["n1"], step_s=5)
    assert await bench.state("j1") == "RUNNING"


async def test_a_drain_outlives_silence_and_registration(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await drain(bench, "n1")
    await bench.pass_time(61, beating=["n2", "n3"])
    assert (await state_of(bench, "n1"))[0] is NodeState.LOST
    await bench.agents["n1"].beat()
    assert (await state_of(bench, "n1"))[0] is NodeState.DRAINING
    await bench.agents["n1"].join()
    assert await state_of(bench, "n1") == (NodeState.DRAINING, "drained by ann: new fan")
    await bench.pass_time(30, beating=["n2", "n3"])
    assert (await state_of(bench, "n1"))[0] is NodeState.SUSPECT


async def test_a_node_can_be_drained_while_it_is_away(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await bench.pass_time(61, beating=["n2", "n3"])
    await drain(bench, "n1")
    assert (await state_of(bench, "n1"))[0] is NodeState.LOST
    await bench.agents["n1"].beat()
    assert (await state_of(bench, "n1"))[0] is NodeState.DRAINING


def test_undraining_what_serves_changes_nothing():
    assert operator.undrain_change(node("n1"), "ann") is None


# -- strikes ------------------------------------------------------------------------------------


async def refuse(bench: Bench, job: str, agent, reason: str = "LaunchRefused") -> None:
    await bench.queue(job, plan("p1", "rtx", 1))
    await bench.turn()
    attempt = (await bench.job(job)).attempt
    await agent.say(EvidenceKind.REFUSED, job, attempt, reason=reason, message="fell off the bus")
    await agent.say(EvidenceKind.CLEAN, job, attempt)
    await bench.turn()


async def test_three_refusals_within_an_hour_drain_a_node_and_say_so(bench):
    agent = await bench.node("n1", 4)
    for job in ("j1", "j2"):
        await refuse(bench, job, agent)
    assert (await state_of(bench, "n1"))[0] is NodeState.UP
    await refuse(bench, "j3", agent)
    why = "3 refused launches within 60 min, the last: fell off the bus"
    assert await state_of(bench, "n1") == (NodeState.DRAINING, why)
    told = [e for e in bench.store._tables.outbox if e.entity == "node:n1"][-1]
    assert (told.type, told.data["message"]) == ("draining", why)
    await undrain(bench, "n1")
    assert (await bench.store.node("n1")).strikes == ()


async def test_missing_data_and_old_refusals_are_no_strikes(bench):
    agent = await bench.node("n1", 4)
    await refuse(bench, "j0", agent, reason="DataError")
    await refuse(bench, "s0", agent, reason="CommunicationError")  # no secrets from the gateway
    assert (await bench.job("s0")).reason == "LaunchRefused"
    assert (await bench.store.node("n1")).strikes == ()
    for job in ("j1", "j2"):
        await refuse(bench, job, agent)
    bench.clock.advance(3601)
    await bench.scheduler._lead()
    await agent.beat()
    await refuse(bench, "j3", agent)
    assert (await state_of(bench, "n1"))[0] is NodeState.UP


def test_a_job_that_all_nodes_refuse_costs_one_of_them_at_most():
    nodes = {name: node(name) for name in "abc"}
    for _ in range(3):
        for name in "abc":
            strikes = struck(nodes[name], nodes.values(), "poison", RULE, 1_000)
            if strikes is not None:
                nodes[name] = replace(nodes[name], strikes=strikes)
    assert [is_out(nodes[name].strikes, RULE) for name in "abc"] == [True, False, False]


def test_no_limit_never_drains():
    never = StrikeRule(limit=0, window_s=3600)
    strikes = struck(node("a"), (), "j", never, 1_000)
    assert strikes == (Strike(time_ms=1_000, job="j"),)
    assert not is_out(strikes, never)


# -- confirm dead -------------------------------------------------------------------------------


async def test_a_node_that_answers_is_not_dead(bench):
    await bench.node("n1")
    with pytest.raises(InvalidState, match="its agent answers") as refused:
        operator.confirm_dead_change(await bench.store.node("n1"), "ann")
    assert "frenzy nodes drain n1" in refused.value.suggestions[0]


@pytest.mark.parametrize("silent_s", [25, 61])
async def test_a_dead_node_s_job_goes_elsewhere_at_once(bench, silent_s):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await run(bench, "j1", ranks=3)
    await bench.pass_time(silent_s, beating=["n1", "n2"])
    await confirm_dead(bench, "n3")
    for name in ("n1", "n2"):
        await bench.agents[name].obey(await bench.agents[name].beat())
    await bench.turn()
    record = await bench.job("j1")
    assert (record.state, record.owned_devices, record.retries) == ("QUEUED", 0, 0)
    assert set((await bench.store.cluster()).owners.values()) == {""}
    assert await state_of(bench, "n3") == (NodeState.LOST, "confirmed dead by ann")


async def test_the_only_two_nodes_may_both_be_dead(bench):
    """Most nodes are silent, so that the leader blames itself: the operator knows better."""
    for name in ("n1", "n2"):
        await bench.node(name)
    await run(bench, "j1", ranks=2)
    await bench.pass_time(100, step_s=3)
    assert (await state_of(bench, "n1"))[0] is NodeState.SUSPECT
    await confirm_dead(bench, "n1")
    await confirm_dead(bench, "n2")
    assert await bench.state("j1") == "QUEUED"


async def test_quarantines_of_a_dead_node_are_lifted(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await run(bench, "j1", ranks=3)
    await bench.pass_time(61, beating=["n1", "n2"])
    for name in ("n1", "n2"):
        await bench.agents[name].obey(await bench.agents[name].beat())
    await bench.pass_time(310, beating=["n1", "n2"], step_s=3)
    assert (await bench.store.cluster()).owners["n3/rtx-0"] == "!quarantine:lost j1#1"
    await confirm_dead(bench, "n3")
    assert (await bench.store.cluster()).owners["n3/rtx-0"] == ""
