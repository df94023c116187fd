"""Registration, reconciliation, silence and fencing, on a clock that the test moves."""

from collections.abc import AsyncIterator

import pytest
from tests.support.scheduler import (
    Bench,
    ScriptedAgent,
    cancel_job,
    make_scheduler,
    submit_job,
)
from tests.support.scheduling import plan

from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.domain.job import JobState, StopReason
from frenzy_shared.errors import Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    DesiredSet,
    EvidenceKind,
    Heartbeat,
    HeldAttempt,
    Phase,
)
from frenzy_shared.state.port import Change


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as made:
        yield made


async def running_job(bench: Bench, job: str, *nodes: str, ranks: int | None = None) -> None:
    await bench.queue(job, plan("p1", "rtx", ranks or len(nodes)))
    for _ in range(3):
        await bench.turn()
        for name in nodes:
            await bench.agents[name].obey(await bench.agents[name].beat())
        await bench.quiet()
    assert await bench.state(job) == "RUNNING"


async def node_state(bench: Bench, name: str) -> NodeState:
    return (await bench.store.node(name)).state


async def test_a_node_is_up_after_its_first_reconciled_heartbeat(bench):
    agent = ScriptedAgent(bench.bus, "n1")
    desired = await agent.beat()
    assert (desired.epoch, desired.attempts) == (1, ())
    assert await node_state(bench, "n1") is NodeState.JOINING
    await agent.beat()
    assert await node_state(bench, "n1") is NodeState.UP


async def test_an_old_epoch_is_fenced(bench):
    agent = await bench.node("n1")
    await agent.join()
    agent.epoch = 1
    assert (await agent.beat()).fenced


async def test_other_devices_need_a_new_registration_and_a_broken_one_only_a_note(bench):
    agent = await bench.node("n1", 2)
    whole = agent.devices
    agent.devices = whole[:1]
    assert (await agent.beat()).fenced
    broken = {"id": whole[1].id, "kind": "rtx", "memory_bytes": 24 * 2**30, "problem": "XID 79"}
    agent.devices = (whole[0], type(whole[1])(**broken))
    assert not (await agent.beat()).fenced
    assert (await bench.store.node("n1")).devices[1].problem == "XID 79"


async def test_a_replica_without_the_lease_stays_silent(bench):
    agent = await bench.node("n1")
    bench.scheduler.leadership.lose()
    with pytest.raises(Unavailable):
        await agent.beat(timeout_s=0.05)


async def test_an_agent_that_restarts_keeps_its_running_job(bench):
    agent = await bench.node("n1")
    await running_job(bench, "j1", "n1")
    await agent.join()
    (part,) = (await agent.beat()).attempts
    assert (agent.epoch, part.phase, part.attempt) == (2, Phase.GO, 1)
    assert await bench.state("j1") == "RUNNING"


async def test_attempts_that_the_store_does_not_know_are_stopped(bench):
    agent = await bench.node("n1")
    agent.held["ghost", 4] = AttemptPhase.STARTED
    agent.held["old", 1] = AttemptPhase.CLEAN
    (part,) = (await agent.beat()).attempts
    assert (part.job, part.attempt, part.phase) == ("ghost", 4, Phase.STOP)


async def test_an_attempt_that_its_node_forgot_ends_after_a_while(bench):
    agent = await bench.node("n1")
    await running_job(bench, "j1", "n1")
    agent.held.clear()
    await bench.pass_time(59, beating=["n1"])
    assert await bench.state("j1") == "RUNNING"
    await bench.pass_time(3, beating=["n1"])
    record = await bench.job("j1")
    assert (record.state, record.reason) == (JobState.STOPPING, "NodeLost")
    assert record.message == "n1 no longer knows attempt 1"


async def test_a_silent_node_gets_no_new_work_and_comes_back(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await bench.pass_time(21, beating=["n1", "n2"])
    assert await node_state(bench, "n3") is NodeState.SUSPECT
    await bench.agents["n3"].beat()
    assert await node_state(bench, "n3") is NodeState.UP


async def test_a_lost_node_ends_its_job_only_after_the_fence(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await running_job(bench, "j1", "n1", "n2", "n3")
    alive = ["n1", "n2"]
    await bench.pass_time(61, beating=alive)
    assert await node_state(bench, "n3") is NodeState.LOST
    assert (await bench.job("j1")).reason == "NodeLost"
    for name in alive:
        await bench.agents[name].obey(await bench.agents[name].beat())
    await bench.pass_time(290, beating=alive, step_s=3)
    assert await bench.state("j1") == "STOPPING"
    await bench.pass_time(20, beating=alive, step_s=3)
    record = await bench.job("j1")
    assert (record.state, record.retries, record.owned_devices) == (JobState.QUEUED, 0, 0)
    owners = (await bench.store.cluster()).owners
    assert owners["n3/rtx-0"] == "!quarantine:lost j1#1"
    assert (owners["n1/rtx-0"], owners["n2/rtx-0"]) == ("", "")


async def lose_with_quarantine(bench: Bench) -> ScriptedAgent:
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await running_job(bench, "j1", "n1", "n2", "n3")
    await cancel_job(bench.store, "j1")
    for name in ("n1", "n2"):
        await bench.agents[name].obey(await bench.agents[name].beat())
    await bench.pass_time(370, beating=["n1", "n2"], step_s=3)
    assert await bench.state("j1") == "CANCELLED"
    return bench.agents["n3"]


async def test_a_node_that_comes_back_with_the_attempt_frees_the_devices_when_clean(bench):
    agent = await lose_with_quarantine(bench)
    desired = await agent.beat()
    assert [part.phase for part in desired.attempts] == [Phase.STOP]
    assert await bench.free_devices() == 2
    await agent.obey(desired)
    await bench.quiet()
    assert await bench.free_devices() == 3


async def test_a_node_that_comes_back_without_the_attempt_frees_them_at_once(bench):
    agent = await lose_with_quarantine(bench)
    agent.held.clear()
    await agent.beat()
    assert await bench.free_devices() == 3
    assert await node_state(bench, "n3") is NodeState.UP


async def test_a_rebooted_node_frees_them_when_it_registers(bench):
    agent = await lose_with_quarantine(bench)
    agent.held.clear()
    agent.boot_id, agent.epoch = "boot-2", 0
    await agent.beat()
    assert await bench.free_devices() == 3


async def test_when_most_nodes_vanish_nothing_is_lost(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    await running_job(bench, "j1", "n1", "n2", "n3")
    await bench.pass_time(100, beating=["n1"], step_s=3)
    assert await node_state(bench, "n3") is NodeState.SUSPECT
    assert await bench.state("j1") == "RUNNING"


async def test_a_new_leader_counts_only_what_it_could_hear_itself(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    bench.clock.advance(1000)  # the old leader died; nobody listened
    await bench.scheduler._lead()
    await bench.pass_time(19, beating=["n1", "n2"])
    assert await node_state(bench, "n3") is NodeState.UP
    await bench.pass_time(2, beating=["n1", "n2"])
    assert await node_state(bench, "n3") is NodeState.SUSPECT


async def test_a_bus_outage_is_nobodys_silence(bench):
    for name in ("n1", "n2", "n3"):
        await bench.node(name)
    bench.bus.broker.available = False
    for _ in range(100):
        bench.clock.advance(1)
        await bench.scheduler._lead()
        await bench.scheduler._look_at_nodes()
    bench.bus.broker.available = True
    await bench.scheduler._look_at_nodes()
    assert await node_state(bench, "n3") is NodeState.UP


async def test_a_leaked_device_is_released_when_its_node_joins(bench):
    """Nothing makes such a leak today; the reconciliation would still repair it."""
    agent = await bench.node("n1")
    await bench.queue("j1")
    await cancel_job(bench.store, "j1")
    bench.store._tables.owners["n1/rtx-0"] = "j1#1"
    bench.store._tables.records["job:j1"]["owned_devices"] = 1
    await agent.join()
    assert await bench.free_devices() == 1


async def test_only_one_of_two_replicas_leads_and_the_other_takes_over(bench):
    other = make_scheduler(bench.store, bench.bus, bench.clock, instance="s2")
    await other._lead()
    assert (bench.scheduler.leadership.held, other.leadership.held) == (True, False)
    bench.clock.advance(4.1)
    await other._lead()
    assert (bench.scheduler.leadership.held, other.leadership.held) == (False, True)
    await bench.scheduler._lead()
    assert not bench.scheduler.leadership.held


async def test_a_deposed_leader_cannot_place(bench):
    await bench.node("n1")
    await bench.queue("j1")
    await bench.store.release_lease("control", "s1")
    await bench.store.acquire_lease("control", "s2", 5)
    await bench.scheduler._schedule()
    assert await bench.state("j1") == "QUEUED"
    assert not bench.scheduler.leadership.held


async def test_a_refused_claim_is_decided_anew_on_a_fresh_snapshot(bench):
    """The node registers again between the snapshot and the claim."""
    agent = await bench.node("n1")
    await bench.queue("j1")
    cluster = bench.store.cluster
    stale = [await cluster()]
    await agent.join()

    async def once_stale():
        return stale.pop() if stale else await cluster()

    bench.store.cluster = once_stale
    await bench.scheduler._schedule()
    assert await bench.state("j1") == "RESERVED"
    value = bench.scheduler.telemetry.registry.get_sample_value
    assert value("frenzy_scheduler_claim_conflicts_total", {"status": "NODE_EPOCH"}) == 1


async def test_evidence_of_exit_survives_a_node_that_goes_silent(bench):
    agent = await bench.node("n1")
    await running_job(bench, "j1", "n1")
    await agent.exit("j1", 1, [0], StopReason.COMPLETED)
    await bench.quiet()
    await bench.pass_time(61)
    await bench.pass_time(310, step_s=3)
    assert await bench.state("j1") == "SUCCEEDED"
    await agent.say(EvidenceKind.CLEAN, "j1")
    await bench.quiet()
    assert await bench.free_devices() == 1


async def test_a_heartbeat_learns_which_of_its_jobs_are_over(bench):
    agent = await bench.node("n1")
    for job in ("running", "failed", "waiting"):
        await submit_job(bench.store, job)
    for job, state in (("running", JobState.RUNNING), ("failed", JobState.FAILED)):
        patch = {"state": state, "finished_ms": 4711 if state is JobState.FAILED else None}
        await bench.store.apply(f"is:{job}", Change(entity=f"job:{job}", patch=patch))
    asked = Heartbeat(
        node="n1",
        epoch=agent.epoch,
        boot_id=agent.boot_id,
        address="127.0.1.1",
        devices=agent.devices,
        checkpoints=("running", "failed", "waiting", "nobody"),
    )
    reply = await bench.bus.request(subjects.heartbeat("n1"), asked.encode(), timeout_s=5)
    assert DesiredSet.decode(reply).over == {"failed": 4711, "nobody": 0}


async def test_a_node_whose_processes_do_not_die_is_drained_and_says_why(bench):
    agent = await bench.node("n1")
    stuck = HeldAttempt(job="j1", attempt=1, phase=AttemptPhase.STOPPING, stuck="j1.1 does not die")
    for _ in range(2):
        heartbeat = Heartbeat(
            node="n1",
            epoch=agent.epoch,
            boot_id=agent.boot_id,
            address="127.0.1.1",
            devices=agent.devices,
            attempts=(stuck,),
        )
        await bench.bus.request(subjects.heartbeat("n1"), heartbeat.encode(), timeout_s=5)
    node = await bench.store.node("n1")
    assert node.state is NodeState.DRAINING
    assert node.reason == node.drain == "j1.1 does not die: look at the machine, and restart it"
    version = node.version
    await agent.beat()
    assert (await bench.store.node("n1")).version == version, "drained once, until an operator says"
