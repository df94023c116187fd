"""What a store gets back beside jobs: tokens, projects, drains, plans, nodes without events."""

from collections.abc import AsyncIterator

import pytest
from tests.support.recovery import beat_all, finish, reconcile, restore, run, saved, why
from tests.support.scheduler import Bench
from tests.support.scheduling import plan

from frenzy_gateway.nodes import drain_change, forgetting, undrain_change
from frenzy_shared.domain.cluster import NodeState, drain_timer
from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_shared.messages import subjects
from frenzy_shared.messages.http import DrainRequest
from frenzy_shared.messages.v1 import Phase
from frenzy_shared.state.decisions import project_changed, token_created, token_revoked
from frenzy_shared.state.port import Change, TokenRecord

VISION = Project(name="vision", weight=2.0, devices=DeviceQuota(limit=4), max_unfinished_jobs=9)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as made:
        yield made


def token(name: str) -> TokenRecord:
    return TokenRecord(
        id=name,
        secret_sha256="ab" * 32,
        role="submitter",
        project="vision",
        name="ann",
        created_ms=1,
        expires_ms=0,
    )


async def decide(bench: Bench) -> None:
    """Two tokens, one of them revoked, and a project's quotas, twice."""
    for name in ("t1", "t2"):
        await bench.store.put_token(token(name), token_created(token(name), "ops"))
    await bench.store.put_project(Project(name="vision"), project_changed(VISION, "ops"))
    await bench.store.put_project(VISION, project_changed(VISION, "ops"))
    await bench.store.delete_token("t2", token_revoked(token("t2"), "ops"))
    await bench.turn()


async def drain(bench: Bench, node: str, *, deadline_s: float | None = None) -> None:
    request = DrainRequest(reason="new fan", deadline_s=deadline_s)
    record = await bench.store.node(node)
    change = drain_change(record, request, "ann", bench.clock.now_ms())
    assert (await bench.store.apply(f"drain:{node}:{record.version}", change)).ok
    await bench.turn()


def forget_events(bench: Bench) -> None:
    """All events are older than the stream keeps them; sequences go on."""
    stream = bench.bus.broker._streams[subjects.EVENTS_STREAM]
    stream.removed.update(message.sequence for message in stream.messages)


async def test_tokens_and_quotas_come_back_and_what_was_revoked_does_not(bench):
    await bench.node("n1")
    await decide(bench)
    await restore(bench, None)
    await beat_all(bench)
    shown = {d.entity: d.repair for d in (await reconcile(bench)).differences}
    assert shown["token:t1"] == "becomes valid: ann, submitter of project vision"
    assert shown["token:t2"] == "is revoked"
    assert shown["project:vision"].startswith("quotas and weight become")
    assert (await reconcile(bench, apply=True)).applied
    assert await bench.store.tokens() == (token("t1"),)
    assert await bench.store.projects() == (VISION,)
    assert (await bench.store.history()).decisions == 5


async def test_an_old_copy_keeps_what_it_has_and_gets_what_it_missed(bench):
    await bench.node("n1")
    await bench.store.put_token(token("t0"), token_created(token("t0"), "ops"))
    await bench.turn()
    copied = saved(bench)
    await decide(bench)
    await restore(bench, copied)
    await beat_all(bench)
    entities = {d.entity for d in (await reconcile(bench)).differences}
    assert "token:t0" not in entities
    assert (await reconcile(bench, apply=True)).applied
    assert [one.id for one in await bench.store.tokens()] == ["t0", "t1"]
    assert await bench.store.projects() == (VISION,)


async def test_decisions_outlive_all_events(bench):
    agent = await bench.node("n1")
    await decide(bench)
    await drain(bench, "n1", deadline_s=3600)
    forget_events(bench)
    await restore(bench, None)
    assert "emptied or replaced" in why(bench)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    assert await bench.store.projects() == (VISION,)
    assert [one.id for one in await bench.store.tokens()] == ["t1"]
    await beat_all(bench)
    node = await bench.store.node("n1")
    assert (node.state, node.epoch) == (NodeState.DRAINING, agent.epoch)
    assert "drained by ann: new fan" in node.drain


async def test_a_node_that_no_event_names_is_known_by_its_own_word(bench):
    """Nothing about it changed for longer than events are kept."""
    agent = await bench.node("n1", 2)
    await bench.turn()
    forget_events(bench)
    await restore(bench, None)
    await agent.beat()
    assert "has registered 1 times" in why(bench)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    await beat_all(bench)
    node = await bench.store.node("n1")
    assert (node.state, node.epoch, len(node.devices)) == (NodeState.UP, agent.epoch, 2)
    assert node.boot_id == agent.boot_id
    assert not why(bench)
    await run(bench, "j1")


async def test_a_drain_keeps_its_deadline(bench):
    await bench.node("n1")
    await bench.node("n2")
    await drain(bench, "n1", deadline_s=600)
    await restore(bench, None)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    due_ms = bench.store._tables.timers[drain_timer("n1")]
    assert due_ms - bench.clock.now_ms() == pytest.approx(600_000, abs=5000)
    assert drain_timer("n2") not in bench.store._tables.timers
    assert (await bench.store.node("n2")).drain == ""


async def test_a_drain_that_was_lifted_stays_lifted(bench):
    await bench.node("n1")
    await drain(bench, "n1")
    record = await bench.store.node("n1")
    assert (await bench.store.apply("undrain", undrain_change(record, "ann"))).ok
    await bench.turn()
    forget_events(bench)
    await restore(bench, None)
    assert "emptied or replaced" in why(bench)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    await beat_all(bench)
    assert (await bench.store.node("n1")).state is NodeState.UP


async def test_what_runs_keeps_its_plan(bench):
    await bench.node("n1", 2)
    await run(bench, "j1")
    before = await bench.store.plans("j1")
    await restore(bench, None)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    (kept,) = (await bench.store.plans("j1")).plans
    assert kept == before.plans[0]
    desired = await bench.agents["n1"].beat()
    assert [(part.phase, part.plan.id) for part in desired.attempts] == [(Phase.GO, "p1")]
    await finish(bench, "j1")


async def test_a_gang_whose_nodes_were_preparing_goes_on(bench):
    await bench.node("n1")
    await bench.queue("j1", plan("p1", "rtx", 1))
    await bench.turn()
    assert await bench.state("j1") == "RESERVED"
    await bench.turn()
    await restore(bench, None)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    desired = await bench.agents["n1"].beat()
    assert [(part.phase, part.plan.id) for part in desired.attempts] == [(Phase.PREPARE, "p1")]
    for _ in range(3):
        await bench.obey_all()
        await bench.turn()
    assert (await bench.job("j1")).attempt == 1
    await finish(bench, "j1")


async def test_an_old_copy_keeps_the_other_plans_of_what_it_knows(bench):
    await bench.node("n1", 2)
    await bench.queue("j1", plan("p1", "rtx", 1), plan("p2", "rtx", 2))
    copied = saved(bench)
    for _ in range(3):
        await bench.turn()
        await bench.obey_all()
    await restore(bench, copied)
    await beat_all(bench)
    assert (await reconcile(bench, apply=True)).applied
    assert len((await bench.store.plans("j1")).plans) == 2


# -- nodes that were forgotten ------------------------------------------------------------------


async def forget(bench: Bench, name: str) -> None:
    lost = Change(entity=f"node:{name}", patch={"state": NodeState.LOST})
    await bench.store.apply(f"lost:{name}", lost)
    node = await bench.store.node(name)
    assert (await bench.store.forget_node(f"forget:{name}", forgetting(node, "ann"))).ok


async def test_a_forgotten_nodes_agent_that_comes_back_is_not_taken_for_a_lost_history(bench):
    agent = await bench.node("n1")
    await forget(bench, "n1")
    assert (await agent.beat()).fenced
    assert not why(bench)
    await agent.join()
    node = await bench.store.node("n1")
    assert (node.state, node.epoch) == (NodeState.UP, 2)


async def test_a_rebuilt_store_does_not_bring_a_forgotten_node_back(bench):
    await bench.node("n1")
    await bench.node("n2")
    await forget(bench, "n1")
    await bench.turn()
    await restore(bench, None)
    await bench.agents["n2"].beat()
    await reconcile(bench, apply=True)
    assert [node.id for node in (await bench.store.cluster()).nodes] == ["n2"]
