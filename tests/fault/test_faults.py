"""Faults of whole processes and servers, on a whole system with two schedulers."""

import asyncio
import random
import secrets
import shutil
import signal
import time

import pytest
from tests.fault.chaos import small
from tests.fault.chaos_report import result_of
from tests.support.deployment import OVER
from tests.support.history import check
from tests.support.recording import history_of

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import Evidence

pytestmark = pytest.mark.timeout(240)
SERVICES = ("gateway", "marp", "scheduler", "scheduler-2", "node-a", "node-b", "node-c")


def succeeded_at_once(end):
    return (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 1, 0)


def running(system, name, *, ranks=2, seconds=4.0, **options):
    job = system.submit(name, ranks=ranks, seconds=seconds, **options)
    system.until(lambda: system.job(job)["state"] == "RUNNING", f"{name} runs", 60)
    return job


@pytest.mark.parametrize("servers", [("valkey",), ("nats",), ("valkey", "nats")], ids="+".join)
def test_killed_servers_lose_and_repeat_nothing(replicated, servers):
    name = "-".join(servers)
    jobs = [running(replicated, f"killed-{name}")]
    for number in range(3):
        jobs.append(replicated.submit(f"killed-{name}-{number}"))
        for server in servers:
            replicated.kill(server)
    assert all(succeeded_at_once(replicated.finished(job)) for job in jobs)


@pytest.mark.parametrize("server", ["valkey", "nats"])
def test_a_frozen_server_is_waited_for(replicated, server):
    job = running(replicated, f"frozen-{server}", seconds=4.0)
    replicated.send(server, signal.SIGSTOP)
    time.sleep(3.0)
    replicated.send(server, signal.SIGCONT)
    assert succeeded_at_once(replicated.finished(job))


def test_a_leader_frozen_past_its_lease_comes_back_as_a_follower(replicated):
    job = running(replicated, "frozen-leader")
    leader = replicated.leader()
    replicated.send(leader, signal.SIGSTOP)
    try:
        replicated.until(lambda: replicated.leader() not in {"", leader}, "another leader", 15)
        late = replicated.submit("under-the-second-leader", ranks=2)
        assert succeeded_at_once(replicated.finished(late))
    finally:
        replicated.send(leader, signal.SIGCONT)
    assert succeeded_at_once(replicated.finished(job))
    assert succeeded_at_once(replicated.finished(replicated.submit("after-it-woke", ranks=3)))


def test_killed_agents_leave_their_ranks_alone(replicated):
    job = running(replicated, "killed-agents", ranks=6, seconds=6.0)
    for node in ("node-a", "node-b", "node-c"):
        replicated.kill(node)
    assert succeeded_at_once(replicated.finished(job))


def test_a_node_frozen_past_its_limit_is_fenced_before_its_job_runs_elsewhere(replicated):
    """That no two attempts lived at once is what the history's check says at the end."""
    job = running(replicated, "frozen-node", seconds=40.0, later_seconds=0.3)
    (node,) = {device["node"] for device in replicated.job(job)["devices"]}
    replicated.send(node, signal.SIGSTOP)
    try:
        replicated.until(lambda: replicated.job(job)["attempt"] == 2, "another attempt", 60)
        assert replicated.node_states()[node] == "LOST"
    finally:
        replicated.send(node, signal.SIGCONT)
    replicated.until(lambda: replicated.node_states()[node] == "UP", "the node is back", 30)
    end = replicated.finished(job)
    assert (end["state"], end["attempt"], end["retries"]) == ("SUCCEEDED", 2, 0), end


def test_sigterm_to_every_service_under_load_is_a_clean_end(replicated):
    jobs = [running(replicated, "terminated", ranks=3)]
    services = [replicated.services[name] for name in SERVICES]
    before = {service.name: len(service.exits) for service in services}
    for name in SERVICES:
        replicated.send(name, signal.SIGTERM)
    jobs += [replicated.submit(f"terminated-{number}") for number in range(3)]
    replicated.until(
        lambda: all(len(service.exits) > before[service.name] for service in services),
        "the end of every service",
        15,
    )
    assert {service.name: service.exits.pop() for service in services} == dict.fromkeys(SERVICES, 0)
    assert all(succeeded_at_once(replicated.finished(job)) for job in jobs)


def test_old_evidence_repeated_and_shuffled_changes_nothing(replicated):
    done = [replicated.submit(f"to-repeat-{ranks}", ranks=ranks) for ranks in (1, 2)]
    ends = [replicated.finished(job) for job in done]
    job = running(replicated, "while-repeating")

    async def repeat() -> int:
        bus = await NatsBus.connect(replicated.nats.url, name="repeater")
        last = await bus.last_sequence(subjects.EVIDENCE_STREAM)
        kept = []
        async for message in bus.read(subjects.EVIDENCE_STREAM, ">", after_sequence=0):
            if message is not None:
                kept.append(message)
            if kept and kept[-1].sequence >= last:
                break
        mine = [m for m in kept if Evidence.decode(m.payload).job in {*done, job}]
        random.shuffle(mine)
        for message in mine:  # an id of its own: the stream must not be what saves us
            await bus.publish(message.subject, message.payload, message_id=secrets.token_hex(8))
        await bus.close()
        return len(mine)

    assert asyncio.run(repeat()) >= 10
    assert succeeded_at_once(replicated.finished(job))
    assert [replicated.job(job)["version"] for job in done] == [end["version"] for end in ends]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_chaos(replicated):
    """Kills, freezes and crash points at random under load."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # shown with a failure; `python -m tests.fault.chaos --seed` takes it
    chaos = small(replicated, seed, seconds=25.0, jobs=30)
    chaos.run()
    found = result_of(chaos.load, history_of(replicated), chaos.log.counts)
    print(found.summary())
    assert found.violations == []
    assert found.failures == []
    assert len(chaos.log.blows) >= 5


def test_the_whole_history_is_right(replicated):
    replicated.finished(replicated.submit("last"))
    assert check(history_of(replicated)) == []
    assert replicated.unexpected_exits() == {}


def test_a_bus_that_lost_everything_goes_on_when_its_streams_are_made_again(replicated):
    """Last, because what the other tests recorded is lost too."""
    job = running(replicated, "bus-lost", seconds=6.0)
    replicated.nats.kill()
    shutil.rmtree(replicated.nats.folder / "jetstream")
    replicated.nats.start()
    waiting = replicated.submit("bus-lost-waiting")
    time.sleep(1.0)
    assert replicated.job(waiting)["state"] not in OVER  # nobody hears the nodes' evidence
    replicated.make_streams()
    assert succeeded_at_once(replicated.finished(waiting))
    assert succeeded_at_once(replicated.finished(job))
    assert replicated.unexpected_exits() == {}
