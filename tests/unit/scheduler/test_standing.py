"""Deciding event by event, against a full cycle after every event."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduling import plan
from tests.support.simulation import nodes, waiting

from frenzy_scheduler.core.cycle import cycle
from frenzy_scheduler.core.decisions import Hold, Place
from frenzy_scheduler.core.policies import policy_named
from frenzy_scheduler.core.standing import Standing
from frenzy_shared.domain.ids import NodeId
from frenzy_simulator.machines import Machines

KINDS = ["t4", "rtx", "a100"]
NODES = nodes(t4=(3, 2), rtx=(2, 4), a100=(1, 3))


class World:
    """Jobs that come, end and are cancelled on nodes that fail: told to both, who must agree."""

    def __init__(self, policy, draw):
        self.policy, self.draw = policy_named(policy), draw
        self.standing = Standing(self.policy)
        self.machines = Machines(NODES)
        self.queue, self.running, self.down = {}, {}, set()
        self.now_ms = self.count = 0

    def step(self):
        often = [self.arrive, self.end] * 4
        events = [*often, self.cancel, self.fail, self.repair, self.repair]
        self.draw.choice(events)()
        self.now_ms += self.draw.choice([0, 1, 500])
        expected = cycle(
            list(self.queue.values()), self.machines.snapshot, self.now_ms, self.policy
        )
        places = self.standing.decide(self.machines.snapshot, self.now_ms)
        assert places == [one for one in expected if not isinstance(one, Hold)]
        for place in places:
            self.machines.take(place.job, place.placement)
            self.running[place.job] = (self.queue.pop(place.job), place.placement.kind)
        return len(places)

    def arrive(self):
        self.count += 1
        shapes = [
            (self.draw.choice(KINDS), self.draw.randint(1, 6), self.draw.random() < 0.4)
            for _ in range(self.draw.randint(0, 3))
        ]
        job = waiting(
            f"j{self.count}",
            self.count,
            *(plan(f"p{n}", kind, c, single_node=one) for n, (kind, c, one) in enumerate(shapes)),
            steps=self.draw.choice([1.0, 50.0]),
            priority=self.draw.choice([50, 50, 90]),
            not_before_ms=self.now_ms + self.draw.choice([0, 0, 400, 2000]),
            nodes=self.draw.choice([None, None, frozenset(map(NodeId, ("t4-0", "rtx-1")))]),
        )
        self.queue[job.id] = job
        self.standing.add(job)

    def end(self):
        if self.running:
            name = self.draw.choice(sorted(self.running))
            self.machines.give_back(name)
            self.standing.freed(self.running.pop(name)[1])

    def cancel(self):
        if self.queue:
            name = self.draw.choice(sorted(self.queue))
            del self.queue[name]
            self.standing.remove(name)

    def fail(self):
        node = self.draw.choice(NODES).id
        if node in self.down:
            return
        for name in list(self.machines.users_of(node)):
            self.machines.give_back(name)
            job, kind = self.running.pop(name)
            self.standing.freed(kind)
            self.queue[name] = job
            self.standing.add(job)
        self.machines.fail(node)
        self.down.add(node)
        self.standing.rebuilt()

    def repair(self):
        if self.down:
            self.machines.repair(self.down.pop())
            self.standing.rebuilt()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["has", "fifo", "srtf"]), st.integers(0, 2**32))
def test_event_by_event_places_whom_a_full_cycle_would_place(policy, seed):
    world = World(policy, random.Random(seed))
    for _ in range(40):
        world.step()


def test_the_comparison_places_many_jobs():
    world = World("has", random.Random(1))
    assert sum(world.step() for _ in range(200)) > 20


@pytest.mark.parametrize("policy", ["has", "srtf"])
def test_an_event_tries_only_whom_it_may_serve(policy, monkeypatch):
    tried = []
    strategy = policy_named(policy)
    place = type(strategy).place
    monkeypatch.setattr(
        type(strategy),
        "place",
        lambda self, job, snap: tried.append(job.id) or place(self, job, snap),
    )
    standing, machines = Standing(strategy), Machines(NODES)
    for number in range(100):
        kind = KINDS[number % 2]
        standing.add(waiting(f"j{number:02}", number, plan("p", kind, 2, single_node=True)))
    placed = standing.decide(machines.snapshot, 0)
    assert len(placed) == 3 + 4
    for one in placed:
        machines.take(one.job, one.placement)
    tried.clear()
    assert standing.decide(machines.snapshot, 1) == []
    assert tried == []
    ended = next(one for one in placed if one.placement.kind == "t4")
    machines.give_back(ended.job)
    standing.freed("t4")
    (after,) = standing.decide(machines.snapshot, 2)
    assert isinstance(after, Place)
    assert tried == [after.job]
