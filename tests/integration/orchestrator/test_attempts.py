"""An attempt's life with a scripted control plane and real processes."""

import asyncio
import json
import os

from prometheus_client import generate_latest
from tests.support.agent import NASTY, eventually, order

from frenzy_orchestrator import attempt as attempt_module
from frenzy_orchestrator import roster, service
from frenzy_orchestrator.adapters import preparation, processes
from frenzy_orchestrator.shim import procfs
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    AttemptPhase,
    DesiredSet,
    EvidenceKind,
    Phase,
    RankAssignment,
)

PRINT = """
import json, os
print("hello from rank", os.environ["RANK"])
with open(os.environ["FRENZY_REPORT_FILE"], "a") as file:
    for step in (1, 2, 3):
        print(json.dumps({"kind": "step", "step": step, "time_ms": step, "loss": 4.0 - step,
                          "peak_allocated_bytes": 1000 * step}), file=file)
    print(json.dumps({"kind": "checkpoint", "step": 3}), file=file)
json.dump(dict(os.environ), open(os.environ["FRENZY_CHECKPOINT_DIR"] + "/env.json", "w"))
"""
SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


def kinds(evidence):
    return [entry.kind.value for entry in evidence]


async def test_happy_path(cluster, monkeypatch):
    monkeypatch.setenv("FRENZY_NATS_URL", "nats://secret@127.0.0.1:1")
    agent = await cluster.agent()
    spec = cluster.script(PRINT)
    await cluster.control.start_job("node-a", order(spec=spec))
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)

    (outcome,) = exited.outcomes
    assert (outcome.exit_code, outcome.reason) == (0, StopReason.COMPLETED)
    assert (outcome.last_step, outcome.loss_first, outcome.loss_last) == (3, 3.0, 1.0)
    assert outcome.peak_allocated_bytes == 3000
    assert [line.text for line in cluster.control.lines()] == ["hello from rank 0"]
    told = kinds(cluster.control.evidence(job="j1"))
    assert told[:2] == ["prepared", "started"]
    assert told[-2:] == ["exited", "clean"]
    assert sorted(told[2:-2]) == ["checkpointed", "progressed"]
    env = json.loads((agent.settings.checkpoints / "j1" / "env.json").read_text())
    assert env["MASTER_ADDR"] == "127.0.1.1"
    assert 20_000 <= int(env["MASTER_PORT"]) <= 29_999
    assert env["GLOO_SOCKET_IFNAME"] == "lo"
    assert env["FROM_PLAN"] == "yes"
    assert env["FRENZY_EMULATED_MEMORY_BYTES"] == str(64 * 1024**2)
    assert "FRENZY_NATS_URL" not in env
    assert not (agent.folder() / "work").exists()
    assert agent.living() == []


async def test_a_stop_before_the_start_is_final(cluster):
    agent = await cluster.agent()
    given = order(spec=cluster.script(SLEEPER))
    await cluster.control.push("node-a", given)
    await cluster.control.seen(EvidenceKind.PREPARED)
    await cluster.control.stop_job("node-a", given)
    await cluster.control.seen(EvidenceKind.CLEAN)
    await cluster.control.push(
        "node-a", given.model_copy(update={"phase": Phase.GO, "rendezvous": "127.0.1.1:20000"})
    )
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    assert kinds(cluster.control.evidence(job="j1")) == ["prepared", "clean"]
    assert not (agent.folder() / "run.json").exists()


async def test_a_stop_of_an_unknown_attempt_is_answered_and_remembered(cluster):
    agent = await cluster.agent()
    given = order(spec=cluster.script(SLEEPER))
    await cluster.control.stop_job("node-a", given)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert (agent.folder() / "tombstone").exists()
    await agent.leave()

    await cluster.agent()
    await cluster.control.push("node-a", given)
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    assert EvidenceKind.PREPARED not in {entry.kind for entry in cluster.control.evidence()}


async def test_an_attempt_older_than_one_that_ended_is_refused(cluster):
    await cluster.agent()
    spec = cluster.script(SLEEPER)
    await cluster.control.stop_job("node-a", order(attempt=2, spec=spec))
    await cluster.control.seen(EvidenceKind.CLEAN)
    await cluster.control.push("node-a", order(attempt=1, spec=spec))
    refused = await cluster.control.seen(EvidenceKind.REFUSED)
    assert refused.attempt == 1
    assert "attempt 2" in refused.message


async def test_a_stop_kills_daemons_and_term_ignorers(cluster):
    agent = await cluster.agent()
    given = order(spec=cluster.script(NASTY))
    await cluster.control.start_job("node-a", given)
    await eventually(lambda: (agent.folder() / "work" / "ready").exists())
    await cluster.control.stop_job("node-a", given)
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert exited.outcomes[0].reason is StopReason.CANCELLED_BY_USER
    assert agent.living() == []


async def test_repeated_and_reordered_orders_start_once(cluster):
    agent = await cluster.agent()
    given = order(spec=cluster.script("open('ran', 'a').write('x')\n" + SLEEPER))
    await cluster.control.start_job("node-a", given)
    run = agent.run_json()
    go = cluster.control.orders["node-a"][("j1", 1)]
    for _ in range(3):
        await cluster.control.push("node-a", given)
        await cluster.control.push("node-a", go)
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    assert agent.run_json() == run
    assert kinds(cluster.control.evidence(EvidenceKind.STARTED)) == ["started"]
    await eventually(lambda: (agent.folder() / "work" / "ran").read_text() == "x")


async def test_what_a_complete_set_leaves_out_is_stopped(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(SLEEPER)))
    cluster.control.orders["node-a"].clear()
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert agent.living() == []


async def test_user_code_that_fails_is_told_with_its_code(cluster):
    await cluster.agent()
    spec = cluster.script("import sys; print('oops', file=sys.stderr); sys.exit(3)")
    await cluster.control.start_job("node-a", order(spec=spec))
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    assert exited.outcomes[0].reason is StopReason.USER_CODE_ERROR
    assert exited.outcomes[0].exit_code == 3
    assert [(line.output, line.text) for line in cluster.control.lines()] == [("stderr", "oops")]


async def test_an_out_of_memory_report_is_the_root_cause_of_its_gang(cluster):
    await cluster.agent()
    script = """
import json, os, sys, time
if os.environ["RANK"] == "1":
    with open(os.environ["FRENZY_REPORT_FILE"], "a") as file:
        print(json.dumps({"kind": "failure", "reason": "CudaOutOfMemory", "message": "need 2 GiB"}),
              file=file)
    sys.exit(1)
time.sleep(600)
"""
    ranks = tuple(RankAssignment(rank=r, local_rank=r, device=f"emu{r}") for r in (0, 1))
    await cluster.control.start_job("node-a", order(spec=cluster.script(script), ranks=ranks))
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    assert exited.reason == StopReason.CUDA_OUT_OF_MEMORY
    assert [outcome.reason for outcome in exited.outcomes] == [
        StopReason.COMMUNICATION_ERROR,
        StopReason.CUDA_OUT_OF_MEMORY,
    ]


async def test_a_device_held_by_another_attempt_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(preparation, "_LOCK_WAIT_S", 0.2)
    await cluster.agent()
    spec = cluster.script(SLEEPER)
    await cluster.control.start_job("node-a", order("j1", spec=spec))
    await cluster.control.push("node-a", order("j2", spec=spec))
    refused = await cluster.control.seen(EvidenceKind.REFUSED, "j2")
    assert refused.reason == StopReason.LAUNCH_REFUSED
    assert "emu0" in refused.message
    await cluster.control.seen(EvidenceKind.CLEAN, "j2")


async def test_finished_attempts_are_forgotten_but_stay_ended(cluster):
    agent = await cluster.agent(keep_attempts=1)
    for job in ("j1", "j2", "j3"):
        given = order(job, spec=cluster.script("pass"))
        await cluster.control.start_job("node-a", given)
        await cluster.control.seen(EvidenceKind.CLEAN, job)
        del cluster.control.orders["node-a"][(job, 1)]
    attempts = agent.settings.data_dir / "attempts"
    await eventually(lambda: [path.name for path in attempts.iterdir()] == ["j3.1"])
    await cluster.control.push("node-a", order("j1", spec=cluster.script("pass")))
    refused = await cluster.control.seen(EvidenceKind.REFUSED, "j1")
    assert "has ended here" in refused.message


async def test_heartbeats_carry_devices_and_attempts(cluster):
    await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(SLEEPER)))
    beat = await eventually(
        lambda: next((b for b in cluster.control.heartbeats if b.attempts and b.epoch), None)
    )
    assert [device.id for device in beat.devices] == ["emu0", "emu1"]
    last = await eventually(
        lambda: next(
            (
                b
                for b in reversed(cluster.control.heartbeats)
                if b.attempts and b.attempts[0].phase is AttemptPhase.STARTED
            ),
            None,
        )
    )
    assert last.attempts[0].job == "j1"


async def test_of_two_prepared_attempts_on_a_device_one_runs(cluster):
    agent = await cluster.agent(cgroups=True)
    spec = cluster.script(SLEEPER)
    first, second = order("j1", spec=spec), order("j2", spec=spec)
    await cluster.control.push("node-a", first, second)
    prepared = [await cluster.control.seen(EvidenceKind.PREPARED, job) for job in ("j1", "j2")]
    go = [
        given.model_copy(update={"phase": Phase.GO, "rendezvous": told.rendezvous})
        for given, told in zip((first, second), prepared, strict=True)
    ]
    await cluster.control.push("node-a", go[0])
    await cluster.control.seen(EvidenceKind.STARTED, "j1")
    await cluster.control.push("node-a", go[1])
    refused = await cluster.control.seen(EvidenceKind.REFUSED, "j2")
    await cluster.control.seen(EvidenceKind.CLEAN, "j2")
    assert "emu0" in refused.message
    assert cluster.control.evidence(EvidenceKind.STARTED, "j2") == []
    assert agent.living(), "the first is not disturbed"
    await cluster.control.stop_job("node-a", first)
    await cluster.control.seen(EvidenceKind.CLEAN, "j1")
    assert agent.living() == []


async def test_metrics(cluster):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script(PRINT + SLEEPER)))

    def shown():
        text = generate_latest(agent.telemetry.registry).decode()
        device = 'frenzy_gpu_memory_used_bytes{device="emu0",emulated="true",kind="emulated-small"'
        return text if f'{device},node="node-a"}} 3000.0' in text else None

    text = await eventually(shown)
    assert 'frenzy_node_up{node="node-a"} 1.0' in text
    assert 'frenzy_node_attempts{node="node-a",phase="started"} 1.0' in text


async def test_clean_is_said_again_when_the_control_plane_asks_again(cluster, monkeypatch):
    monkeypatch.setattr(roster, "_REPEAT_MS", 0)
    await cluster.agent()
    given = order(spec=cluster.script(SLEEPER))
    await cluster.control.stop_job("node-a", given)
    await cluster.control.seen(EvidenceKind.CLEAN, count=3)
    sequences = [entry.sequence for entry in cluster.control.evidence(EvidenceKind.CLEAN)]
    assert sequences == sorted(set(sequences))


async def test_a_device_whose_attempt_does_not_die_is_not_offered(cluster, monkeypatch):
    monkeypatch.setattr(attempt_module, "_STUCK_AFTER_S", 0.1)
    agent = await cluster.agent()
    given = order(spec=cluster.script(SLEEPER))
    await cluster.control.start_job("node-a", given)
    immortal = [procfs.stat(os.getpid())]
    monkeypatch.setattr(processes, "kill_strays", lambda folder: immortal)
    monkeypatch.setattr(processes, "strays", lambda folder: immortal)
    await cluster.control.stop_job("node-a", given)

    def problem():
        return cluster.control.heartbeats[-1].devices[0].problem

    assert "does not die" in await eventually(problem)
    (held,) = cluster.control.heartbeats[-1].attempts
    assert held.stuck == f"j1.1 does not die (pid {os.getpid()})"
    assert cluster.control.heartbeats[-1].devices[1].problem == ""
    assert cluster.control.evidence(EvidenceKind.CLEAN) == []
    immortal.clear()
    await cluster.control.seen(EvidenceKind.CLEAN)
    await eventually(lambda: not problem())
    assert agent.living() == []


async def test_an_attempt_that_the_agent_itself_trips_over_is_tried_again(cluster, monkeypatch):
    monkeypatch.setattr(roster, "_RETRY_S", 0.05)
    agent = await cluster.agent()
    tools, trips = agent.agent.roster.tools, []
    original = tools.preparation.prepare

    async def trip(folder):
        trips.append(folder)
        if len(trips) < 3:
            raise RuntimeError("a bug of the agent's own")
        return await original(folder)

    monkeypatch.setattr(tools.preparation, "prepare", trip)
    await cluster.control.start_job("node-a", order(spec=cluster.script("pass")))
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert len(trips) == 3


async def test_malformed_messages_are_dropped(cluster):
    agent = await cluster.agent()
    await cluster.control.bus.emit(subjects.desired("node-a"), b"{not json")
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 1)
    assert not agent.tasks[0].done()


async def test_an_old_push_is_ignored(cluster):
    await cluster.agent()
    cluster.control.epochs["node-a"] = 0
    stale = DesiredSet(
        node="node-a", epoch=0, complete=False, attempts=(order(spec=cluster.script("pass")),)
    )
    await cluster.control.bus.emit(subjects.desired("node-a"), stale.encode())
    cluster.control.epochs["node-a"] = 1
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 1)
    assert cluster.control.evidence() == []


async def test_checkpoints_of_a_job_that_ended_long_ago_are_removed(cluster, monkeypatch):
    monkeypatch.setattr(service, "_COLLECT_S", 0.05)
    agent = await cluster.agent(keep_checkpoints_s=1)
    ended, waiting = "1" * 26, "2" * 26
    for job in (ended, waiting):
        (agent.settings.checkpoints / job / "step-5").mkdir(parents=True)
    (agent.settings.checkpoints / ended / "model").mkdir()
    cluster.control.over = {ended: 1}
    collecting = asyncio.ensure_future(agent.agent.collection(agent.stop))
    agent.tasks.append(collecting)
    await eventually(lambda: not (agent.settings.checkpoints / ended / "step-5").exists())
    assert (agent.settings.checkpoints / ended / "model").exists()
    asked = {job for beat in cluster.control.heartbeats for job in beat.checkpoints}
    assert asked == {ended, waiting}
    assert (agent.settings.checkpoints / waiting / "step-5").exists()
