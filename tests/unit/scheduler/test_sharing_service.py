"""Quotas, fair share, dependencies, holds and node pins on the whole scheduler."""

import pytest
from tests.support.scheduler import Bench
from tests.support.scheduling import plan
from tests.support.simulation import a_plan

from frenzy_shared.domain.ids import JobId
from frenzy_shared.domain.job import StopReason
from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_shared.messages.v1 import EvidenceKind
from frenzy_shared.state.port import Change

ONE, TWO = plan("p1", "rtx", 1), plan("p2", "rtx", 2)


async def patch(bench, job, **fields):
    record = await bench.job(job)
    change = Change(entity=f"job:{job}", patch=fields)
    assert (await bench.store.apply(f"patch:{job}:{record.version}:{sorted(fields)}", change)).ok


async def train(bench, job, *, step):
    """Bring a placed job to a training step."""
    while await bench.state(job) != "RUNNING":
        await bench.obey_all()
        await bench.turn()
    await bench.agents["n1"].say(EvidenceKind.PROGRESSED, job, step=step, loss=1.0)
    await bench.turn()


async def pending(bench, job):
    found = await bench.store.pending(JobId(job))
    return found["reason"], found["message"]


async def test_a_quota_holds_a_job_back_with_numbers_until_it_is_raised():
    quota = Project(name="default", kinds={"rtx": DeviceQuota(limit=1)})
    async with Bench() as bench:
        await bench.node("n1", devices=3)
        await bench.store.put_project(quota)
        await bench.queue("a", ONE)
        await bench.queue("b", ONE)
        await bench.turn()
        assert (await bench.state("a"), await bench.state("b")) == ("RESERVED", "QUEUED")
        text = "project default uses 1 of at most 1 x rtx; plan p1 needs 1 more"
        assert await pending(bench, "b") == ("QuotaExceeded", text)
        await bench.store.put_project(Project(name="default"))
        await bench.turn()
        assert await bench.state("b") == "RESERVED"


async def test_an_owner_gets_borrowed_devices_back_from_a_running_job():
    """The guest runs on both devices and is shorter; the owner's job takes its own all the same."""
    async with Bench(policy="srtf-preemptive") as bench:
        await bench.node("n1", devices=2)
        await bench.queue("guest", a_plan("p2", "rtx", 2, 1.0), max_steps=1000)
        await bench.turn()
        await train(bench, "guest", step=1)
        await bench.store.put_project(Project(name="team", devices=DeviceQuota(nominal=1)))
        await bench.queue("own", a_plan("p1", "rtx", 1, 1.0), max_steps=100_000)
        await patch(bench, "own", priority=0)
        await bench.turn()
        assert await bench.state("guest") == "RUNNING"
        await move_project(bench, "own", "team")
        await bench.turn()
        assert (await bench.job("guest")).reason == "Preempted"


async def move_project(bench, job, project):
    """Submit under another project, which the bench's jobs cannot."""
    bench.store._tables.records[f"job:{job}"]["project"] = project


async def test_what_projects_have_had_survives_a_restart_and_counts():
    async with Bench() as bench:
        await bench.node("n1", devices=1)
        await bench.queue("long", ONE)
        await bench.turn()
        sharing = bench.scheduler._sharing
        await sharing.keep_account()
        bench.clock.advance(86_400)
        await sharing.keep_account()
        had = (await bench.store.usage())["device_s"]["default"]["rtx"]
        assert had == pytest.approx(86_400 / 2 / 0.6931, rel=1e-3)
        await bench.queue("a", ONE)
        await bench.queue("b", ONE)
        await move_project(bench, "b", "other")
        situation = await bench.scheduler._look.at_everything()
        stands = {job.id: job.standing for job in situation.queue}
        assert stands["a"] < 1.0 < stands["b"]


async def test_without_a_half_life_there_is_no_fair_share():
    async with Bench(fair_share_half_life_s=0) as bench:
        await bench.node("n1")
        await bench.queue("a", ONE)
        await bench.turn()
        await bench.scheduler._sharing.keep_account()
        assert await bench.store.usage() is None


async def test_a_dependent_job_waits_and_starts_when_the_other_succeeded():
    async with Bench() as bench:
        await bench.node("n1", devices=2)
        await bench.queue("first", ONE)
        await bench.queue("second", ONE)
        await patch(bench, "second", depends_on=["first"])
        await bench.turn()
        assert await bench.state("second") == "QUEUED"
        reason, text = await pending(bench, "second")
        assert reason == "DependencyNotMet"
        assert text.startswith("starts when these have succeeded: first (first) is ")
        while await bench.state("first") != "SUCCEEDED":
            await bench.obey_all(exit_reason=StopReason.COMPLETED)
            await bench.turn()
        await bench.turn()
        assert await bench.state("second") == "RESERVED"


async def test_jobs_behind_a_failed_one_are_cancelled_one_after_the_other():
    async with Bench() as bench:
        await bench.node("n1")
        for job in ("first", "second", "third", "whatever"):
            await bench.queue(job, ONE)
        await patch(bench, "second", depends_on=["first"])
        await patch(bench, "third", depends_on=["second"])
        await patch(bench, "whatever", after=["first"])
        await patch(bench, "first", state="CANCELLED", reason="ByUser")
        await bench.turn()
        await bench.turn()
        second, third = await bench.job("second"), await bench.job("third")
        assert (second.state, second.reason) == ("CANCELLED", "ByPolicy")
        assert second.message == "job first (first), which it depends on, is CANCELLED"
        assert third.message == "job second (second), which it depends on, is CANCELLED"
        assert second.finished_ms is not None
        assert "cancelled" in await bench.events("second")
        assert await bench.state("whatever") == "RESERVED"


async def test_a_held_job_waits_until_it_is_released():
    async with Bench() as bench:
        await bench.node("n1")
        await bench.queue("a", ONE)
        await patch(bench, "a", held_by="alice")
        await bench.turn()
        text = "held back by alice; frenzy release a lets it start"
        assert await pending(bench, "a") == ("Held", text)
        await patch(bench, "a", held_by="")
        await bench.turn()
        assert await bench.state("a") == "RESERVED"


async def test_pins_keep_a_job_to_its_nodes_and_say_so():
    async with Bench() as bench:
        await bench.node("n1", devices=2)
        await bench.node("n2", devices=1)
        await bench.queue("a", ONE, resources={"nodes": ["n2"]})
        await bench.queue("b", ONE, resources={"nodes": ["n2"]})
        await bench.queue("c", TWO, resources={"exclude_nodes": ["n2"]})
        await bench.turn()
        assert (await bench.job("a")).placement.nodes == ("n2",)
        assert (await bench.job("c")).placement.nodes == ("n1",)
        reason, text = await pending(bench, "b")
        assert reason == "WaitingForCapacity"
        assert "0 of 1 on the 1 nodes that it may use are idle" in text


async def test_labels_choose_nodes():
    async with Bench() as bench:
        agent = await bench.node("n1")
        labelled = await bench.node("n2")
        labelled.labels = (("zone", "b"),)
        await labelled.join()
        await bench.queue("a", ONE, resources={"node_labels": {"zone": "b"}})
        await bench.queue("b", ONE, resources={"node_labels": {"zone": "c"}})
        await bench.turn()
        assert (await bench.job("a")).placement.nodes == ("n2",)
        reason, text = await pending(bench, "b")
        assert reason == "WaitingForNodes"
        assert "the nodes that it may use have 0" in text
        assert agent.labels == ()
