"""The agent goes away, politely or not, and another one takes up what it left."""

import asyncio
import json
import os
import signal
import time

import pytest
from tests.support.agent import SHORT_LOG, eventually, order, reap

from frenzy_orchestrator.shim import procfs
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages.v1 import AttemptPhase, EvidenceKind, Phase

COUNTER = """
import sys, time, os
for number in range(1, 4001):
    print("line", number, file=(sys.stdout if number % 3 else sys.stderr), flush=True)
    if number % 40 == 0:
        time.sleep(0.01)
while not os.path.exists("finish"):
    time.sleep(0.02)
sys.exit(5)
"""
WAITER = """
import os, sys, time
print("up", flush=True)
while not os.path.exists("finish"):
    time.sleep(0.02)
"""


async def crash(agent):
    """Cut an agent off as kill -9 would: no farewell, nothing flushed."""
    for task in [*agent.tasks, *agent.agent.roster._tasks.values()]:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.5)
    await agent.bus.close()


def ranks_of(run):
    return [(entry["pid"], entry["start"]) for entry in run["ranks"]]


async def test_ranks_outlive_the_agent_and_their_end_is_told_by_the_next(cluster):
    first = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(COUNTER)))
    run = first.run_json()
    await crash(first)

    second = await cluster.agent()
    assert second.run_json() == run
    assert all(procfs.is_alive(pid, start) for pid, start in ranks_of(run))
    (second.folder() / "work" / "finish").touch()
    exited = await cluster.control.seen(EvidenceKind.EXITED, timeout_s=25)
    assert exited.outcomes[0].exit_code == 5
    assert exited.epoch == 2
    await cluster.control.seen(EvidenceKind.CLEAN)


async def test_log_lines_are_neither_lost_nor_doubled_over_crashes(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(COUNTER)))
    for _ in range(4):
        await asyncio.sleep(0.15)
        await crash(agent)
        agent = await cluster.agent()
    (agent.folder() / "work" / "finish").touch()
    await cluster.control.seen(EvidenceKind.EXITED, timeout_s=25)
    lines = cluster.control.lines()
    assert [line.number for line in lines] == list(range(1, 4001))
    numbers = {"stdout": [], "stderr": []}
    for line in lines:
        numbers[line.output].append(int(line.text.split()[1]))
    assert numbers["stdout"] == [n for n in range(1, 4001) if n % 3]
    assert numbers["stderr"] == [n for n in range(1, 4001) if not n % 3]


async def test_lines_come_before_the_end_even_if_the_bus_was_away(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    cluster.broker.available = False
    (agent.folder() / "work" / "finish").touch()
    await eventually(lambda: (agent.folder() / "exit.json").exists())
    await asyncio.sleep(0.5)
    assert next(iter(agent.agent.roster.journal.attempts.values())).journal.phase is (
        AttemptPhase.STARTED
    )
    cluster.broker.available = True
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert [line.text for line in cluster.control.lines()] == ["up"]


async def test_evidence_that_was_not_stored_is_sent_by_the_next_agent(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    agent.tasks[1].cancel()  # from here on nothing is published
    await asyncio.wait({agent.tasks[1]})
    (agent.folder() / "work" / "finish").touch()
    await eventually(lambda: agent.agent.ledger.pending >= 2)
    await crash(agent)
    assert cluster.control.evidence(EvidenceKind.EXITED) == []
    await cluster.agent()
    await cluster.control.seen(EvidenceKind.CLEAN)
    sequences = [entry.sequence for entry in cluster.control.evidence(job="j1")]
    assert sequences == sorted(set(sequences))


async def test_a_prepared_attempt_keeps_its_rendezvous_over_a_restart(cluster):
    first = await cluster.agent()
    given = order(spec=cluster.script(WAITER))
    await cluster.control.push("node-a", given)
    prepared = await cluster.control.seen(EvidenceKind.PREPARED)
    await crash(first)
    second = await cluster.agent()
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
    await cluster.control.push("node-a", go)
    await cluster.control.seen(EvidenceKind.STARTED)
    launch = json.loads((second.folder() / "launch.json").read_text())
    port = launch["ranks"][0]["env"]["MASTER_PORT"]
    assert prepared.rendezvous == f"127.0.1.1:{port}"
    assert len(cluster.control.evidence(EvidenceKind.PREPARED)) == 1


async def test_a_crash_between_go_and_the_shim_starts_it_once(cluster):
    first = await cluster.agent()
    given = order(spec=cluster.script("open('ran', 'a').write('x')\n" + WAITER))
    await cluster.control.push("node-a", given)
    prepared = await cluster.control.seen(EvidenceKind.PREPARED)
    attempt = next(iter(first.agent.roster.attempts.values()))
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": prepared.rendezvous})
    cluster.control.want("node-a", go)
    task = first.agent.roster._tasks[attempt.key]
    task.cancel()
    await asyncio.wait({task})
    attempt.go(go)  # journaled, and the agent dies before it does anything
    await crash(first)
    second = await cluster.agent()
    await cluster.control.seen(EvidenceKind.STARTED)
    await eventually(lambda: (second.folder() / "work" / "ran").exists())
    assert (second.folder() / "work" / "ran").read_text() == "x"


async def test_a_tombstone_is_obeyed_by_the_next_agent(cluster):
    first = await cluster.agent()
    given = order(spec=cluster.script(WAITER))
    await cluster.control.start_job("node-a", given)
    cluster.control.answering = False
    attempt = next(iter(first.agent.roster.attempts.values()))
    attempt.folder.bury(StopReason.CANCELLED_BY_USER, 0.3)  # and dies before it kills
    await crash(first)
    cluster.control.answering = True
    second = await cluster.agent()
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert exited.outcomes[0].reason is StopReason.CANCELLED_BY_USER
    assert second.living() == []


async def test_a_lost_shim_is_told_as_unknown_and_nothing_of_it_stays(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(SHORT_LOG)))
    os.kill(agent.run_json()["shim"], signal.SIGKILL)
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert exited.outcomes[0].exit_code is None
    assert exited.outcomes[0].reason is StopReason.INTERNAL_ERROR
    assert "shim" in exited.outcomes[0].message
    assert agent.living() == []


async def test_a_reboot_is_told_as_a_lost_node(cluster):
    first = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    await crash(first)
    run = first.run_json()
    os.kill(run["shim"], signal.SIGKILL)
    reap()
    await eventually(lambda: not first.living())
    run["boot_id"] = "another-boot"
    (first.folder() / "run.json").write_text(json.dumps(run))
    await cluster.agent()
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    assert exited.outcomes[0].reason is StopReason.NODE_LOST
    await cluster.control.seen(EvidenceKind.CLEAN)


async def test_sigterm_leaves_ranks_running(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    began = time.monotonic()
    results = await agent.leave()
    assert results == [None, None]
    assert time.monotonic() - began < 3
    assert all(procfs.is_alive(pid, start) for pid, start in ranks_of(agent.run_json()))


async def test_silence_of_the_control_plane_ends_the_ranks(cluster):
    agent = await cluster.agent(fence_after_s=1.0, heartbeat_s=0.2)
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    await asyncio.sleep(1.5)
    assert agent.living(), "answered heartbeats keep it alive"
    cluster.control.answering = False
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert exited.outcomes[0].reason is StopReason.NODE_LOST


@pytest.mark.parametrize(("own_s", "ordered_s"), [(1.0, None), (60.0, 1.0), (1.0, 60.0)])
async def test_a_frozen_agent_cannot_keep_ranks_past_the_lease(cluster, own_s, ordered_s):
    """The shorter limit counts: the node's, or what the control plane counts on."""
    agent = await cluster.agent(fence_after_s=own_s, heartbeat_s=0.2)
    waiting = order(spec=cluster.script(WAITER), fence_after_s=ordered_s)
    await cluster.control.start_job("node-a", waiting)
    await crash(agent)  # as good as frozen: nobody renews the lease
    exit_file = agent.folder() / "exit.json"
    await eventually(exit_file.exists, timeout_s=5)
    assert json.loads(exit_file.read_text())["ended_by"] == "fenced"
    await cluster.agent()
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    assert exited.outcomes[0].reason is StopReason.NODE_LOST


async def test_a_second_agent_of_the_same_name_ends_the_first(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 1)
    cluster.control.fenced = True
    error = (await asyncio.wait_for(asyncio.gather(agent.tasks[0], return_exceptions=True), 15))[0]
    assert "another agent runs as node node-a" in str(error)
    assert agent.living() == []


async def test_a_drain_beside_the_agent_is_told_as_a_drain(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(WAITER)))
    stop = {"grace_s": 0.3, "reason": "Drained"}  # what `frenzy down` leaves
    (agent.folder() / "stop.json").write_text(json.dumps(stop))
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    assert exited.outcomes[0].reason is StopReason.DRAINED
    await cluster.control.seen(EvidenceKind.CLEAN)
