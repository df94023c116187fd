"""An attempt that gets ready beside another one of its job, and goes when told: real processes."""

import json
import sys
from dataclasses import replace

import pytest
from tests.support.agent import SCRIPTS, eventually, order

from frenzy_shared.domain.continuation import PlanShape
from frenzy_shared.domain.job import StopReason
from frenzy_shared.domain.plan import Precision
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.messages.v1 import AttemptPhase, EvidenceKind, Phase

# What the built-in trainer does: ready, wait for the file, go on from where it says.
WAITS = """
import json, os, time
def report(**entry):
    with open(os.environ["FRENZY_REPORT_FILE"], "a") as file:
        print(json.dumps(entry), file=file)
report(kind="warm")
while not os.path.exists(os.environ["FRENZY_RELEASE_FILE"]):
    time.sleep(0.01)
print(json.load(open(os.environ["FRENZY_RELEASE_FILE"]))["resume_from"], flush=True)
report(kind="step", step=8, time_ms=1, loss=1.0)
"""
TRAINER = replace(SCRIPTS, trainer=(sys.executable, "-c", WAITS))
FORMER = PlanShape(zero_stage=1, ranks=1, precision=Precision.FP32)


@pytest.fixture
async def node(cluster, tmp_path):
    return await cluster.agent(programs=TRAINER)


def successor(tmp_path):
    data = tmp_path / "data.txt"
    data.write_text("text")
    document = {"model": "gpt2", "global_batch_size": 1, "data": f"node:{data}", "max_steps": 9}
    spec = JobSpec.model_validate(document)
    return order(attempt=2, spec=spec, continues=FORMER)


async def warm(cluster, given, nth=1):
    """Prepare the attempt, let its ranks get ready; return the order that did it."""
    await cluster.control.push("node-a", given)
    prepared = await cluster.control.seen(EvidenceKind.PREPARED, count=nth)
    wait = given.model_copy(update={"warm": True, "rendezvous": prepared.rendezvous})
    await cluster.control.push("node-a", wait)
    await cluster.control.seen(EvidenceKind.WARM)
    return wait


def told(cluster):
    kinds = [entry.kind.value for entry in cluster.control.evidence(job="j1")]
    return [kind for kind in kinds if kind != "progressed"]


async def test_ranks_get_ready_wait_and_go_on_from_the_checkpoint(cluster, node, tmp_path):
    wait = await warm(cluster, successor(tmp_path))
    plan = json.loads((node.folder(attempt=2) / "plan.json").read_text())
    assert plan["continues"] == {"zero_stage": 1, "ranks": 1, "precision": "fp32"}
    assert node.agent.roster.held()[0].phase is AttemptPhase.PREPARED
    assert told(cluster) == ["prepared", "warm"]
    assert node.living()
    go = wait.model_copy(update={"phase": Phase.GO, "warm": False, "resume_step": 7})
    await cluster.control.push("node-a", go)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert told(cluster) == ["prepared", "warm", "started", "exited", "clean"]
    (line,) = cluster.control.lines(attempt=2)
    assert line.text == str(node.settings.checkpoints / "j1" / "step-7")


async def test_a_successor_that_is_given_up_ends_and_never_trains(cluster, node, tmp_path):
    wait = await warm(cluster, successor(tmp_path))
    await cluster.control.stop_job("node-a", wait, reason="Superseded")
    await cluster.control.seen(EvidenceKind.CLEAN)
    (ended,) = cluster.control.evidence(EvidenceKind.EXITED)
    assert ended.reason == StopReason.SUPERSEDED
    assert node.living() == []
    await cluster.control.push("node-a", wait.model_copy(update={"phase": Phase.GO}))
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    assert EvidenceKind.STARTED not in {entry.kind for entry in cluster.control.evidence()}
    assert not (node.folder(attempt=2) / "release.json").exists()


async def test_an_agent_that_comes_back_finds_the_ranks_that_wait(cluster, node, tmp_path):
    wait = await warm(cluster, successor(tmp_path))
    ranks = json.loads((node.folder(attempt=2) / "run.json").read_text())["ranks"]
    living = {process.pid for process in node.living()}
    assert {rank["pid"] for rank in ranks} <= living
    await node.leave()
    again = await cluster.agent(programs=TRAINER)
    beats = len(cluster.control.heartbeats)
    await eventually(lambda: len(cluster.control.heartbeats) > beats + 2)
    assert {process.pid for process in again.living()} == living
    assert told(cluster) == ["prepared", "warm"]
    await cluster.control.push("node-a", wait.model_copy(update={"phase": Phase.GO}))
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert told(cluster)[2:] == ["started", "exited", "clean"]
    assert again.living() == []


async def test_go_that_comes_while_the_agent_is_away_is_obeyed_by_the_next(cluster, node, tmp_path):
    """The order was recorded, the ranks were not released yet."""
    wait = await warm(cluster, successor(tmp_path))
    await node.leave()
    cluster.control.want("node-a", wait.model_copy(update={"phase": Phase.GO, "resume_step": 3}))
    again = await cluster.agent(programs=TRAINER)
    await cluster.control.seen(EvidenceKind.CLEAN)
    released = json.loads((again.folder(attempt=2) / "release.json").read_text())
    assert released["resume_from"].endswith("/j1/step-3")


async def test_the_attempt_that_trains_is_left_alone_meanwhile(cluster, node, tmp_path):
    """Both attempts on one node, each on its device; the end of one does not touch the other."""
    sleeps = cluster.script("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    present = order(attempt=1, spec=sleeps)
    await cluster.control.start_job("node-a", present)
    given = successor(tmp_path)
    elsewhere = given.ranks[0].model_copy(update={"device": "emu1"})
    wait = await warm(cluster, given.model_copy(update={"ranks": (elsewhere,)}), nth=2)
    await cluster.control.stop_job("node-a", wait, reason="Superseded")
    clean = await cluster.control.seen(EvidenceKind.CLEAN)
    assert clean.attempt == 2
    held = {(one.attempt, one.phase) for one in node.agent.roster.held()}
    assert (1, AttemptPhase.STARTED) in held
