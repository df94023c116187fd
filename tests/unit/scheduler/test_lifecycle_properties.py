"""Whatever order facts come in, a job never leaks a device and never gets stuck."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduling import job, placement

from frenzy_scheduler.changes import job_change
from frenzy_scheduler.core.facts import (
    Checkpointed,
    Clean,
    Exited,
    NodeFenced,
    NodeGone,
    Prepared,
    Progressed,
    Refused,
    Started,
    TimerDue,
    TimerKind,
    Warm,
)
from frenzy_scheduler.core.lifecycle import react, reserve, settle
from frenzy_scheduler.core.steps import Rules
from frenzy_scheduler.core.succession import open_successor
from frenzy_shared.domain.job import PLACED, TERMINAL, JobState, RankOutcome, StopReason
from frenzy_shared.domain.transitions import transition
from frenzy_shared.state.rules import check_change

SPARE = placement("d/rtx-0", "e/rtx-0")  # where a successor gets ready
NODES = {"a": ("a/rtx-0",), "b": ("b/rtx-0", "b/rtx-1"), "c": ("c/rtx-0",)}
RULES = Rules(max_retries=1, max_oom_retries=1, max_duration_s=3600.0)
# What a rank may die of; how a job is cancelled is not the ranks' to say.
DEATHS = [
    StopReason.COMPLETED,
    StopReason.CUDA_OUT_OF_MEMORY,
    StopReason.USER_CODE_ERROR,
    StopReason.COMMUNICATION_ERROR,
    StopReason.DATA_ERROR,
    StopReason.DRAINED,
]
CANCEL = "cancel"
MOVE = "move"


class World:
    """One job and the devices it owns, changed only by steps, each checked."""

    def __init__(self, nodes):
        self.gang = placement(*(key for name in nodes for key in NODES[name]))
        self.record = job(JobState.QUEUED)
        devices = (*self.gang.devices, *SPARE.devices)
        self.owners = dict.fromkeys((ref.key for ref in devices), "")
        self.attempts = set()
        self.now_ms = 1

    def place(self):
        self.owners = {
            key: "" if owner.startswith("!") else owner for key, owner in self.owners.items()
        }  # the nodes came back clean
        self._take(reserve(self.record, self.gang, RULES, shape=None, now_ms=0))

    def hear(self, attempt, fact):
        self.now_ms += 1
        if fact == CANCEL:
            if self.record.state in {JobState.RESERVED, JobState.STARTING, JobState.RUNNING}:
                self.record = replace(
                    self.record,
                    state=JobState.STOPPING,
                    reason="ByUser",
                    version=self.record.version + 1,
                )
            return
        if fact == MOVE:
            self._move()
            return
        step = react(self.record, attempt, fact, RULES, self.now_ms)
        if step is not None:
            self._take(step)
        while (step := settle(self.record, RULES, self.now_ms)) is not None:
            self._take(step)

    def _move(self):
        """Open a successor, as the cycle does: the job trains, and the devices are idle."""
        gone = self.record.successor is None or self.record.successor.gone
        idle = all(self.owners[ref.key] == "" for ref in SPARE.devices)
        here = self.record.placement == self.gang
        if self.record.state is JobState.RUNNING and gone and idle and here:
            step = open_successor(self.record, SPARE, "to move", RULES, shape=None, now_ms=1)
            self._take(step)

    def owned(self):
        return sum("#" in owner and not owner.startswith("!") for owner in self.owners.values())

    def _take(self, step):
        if step.moves:
            transition(step.before.state, step.after.state)
        change = job_change(step)
        check_change(change)
        assert change.expect_version == self.record.version
        attempt = change.claim_attempt or step.after.attempt
        token = f"{step.after.id}#{attempt}"
        if change.claims:
            assert attempt not in self.attempts  # a node refuses a number that it has buried
            self.attempts.add(attempt)
        for claim in change.claims:
            assert self.owners[f"{claim.node}/{claim.device}"] == ""
            self.owners[f"{claim.node}/{claim.device}"] = token
        for release in change.releases:
            assert self.owners[f"{release.node}/{release.device}"] == release.token
            self.owners[f"{release.node}/{release.device}"] = release.to
        if step.before.state is JobState.STOPPING and step.after.state is JobState.STARTING:
            assert step.after.attempt == step.before.successor.attempt
            assert f"{step.after.id}#{step.before.attempt}" not in self.owners.values()
            assert step.after.retries == step.before.retries
        self.record = replace(step.after, version=self.record.version + bool(change.patch))
        assert self.record.owned_devices == self.owned()
        if self.record.state not in PLACED:
            assert self.owned() == 0


def outcomes(node, reason):
    keys = GANG_KEYS if node in NODES else [ref.key for ref in SPARE.devices]
    ranks = [rank for rank, key in enumerate(keys) if key.startswith(f"{node}/")]
    return tuple(RankOutcome(rank=rank, exit_code=1, reason=reason) for rank in ranks)


GANG_KEYS = [key for keys in NODES.values() for key in keys]

node_names = st.sampled_from([*sorted(NODES), *SPARE.nodes])
facts = st.one_of(
    node_names.map(lambda n: Prepared(node=n, rendezvous="h:1")),
    node_names.map(lambda n: Warm(node=n)),
    node_names.map(lambda n: Started(node=n)),
    st.builds(
        lambda n, reason: Exited(node=n, outcomes=outcomes(n, reason)),
        node_names,
        st.sampled_from(DEATHS),
    ),
    node_names.map(lambda n: Clean(node=n)),
    node_names.map(lambda n: Refused(node=n, reason="DeviceBusy", message="busy")),
    node_names.map(lambda n: NodeGone(node=n, why="lost")),
    node_names.map(lambda n: NodeFenced(node=n)),
    st.integers(0, 5).map(lambda step: Progressed(step=step, loss=1.0)),
    st.integers(0, 5).map(lambda step: Checkpointed(step=step)),
    st.sampled_from(TimerKind).map(lambda kind: TimerDue(kind=kind)),
    st.just(CANCEL),
    st.just(MOVE),
)


def finish(world):
    """Let what nodes and timers promise to do happen: the job must come to rest."""
    for _ in range(4):
        attempt, nodes = world.record.attempt, (*NODES, *SPARE.nodes)
        if world.record.state not in PLACED:
            return
        if world.record.state in {JobState.RESERVED, JobState.STARTING}:
            world.hear(attempt, TimerDue(kind=TimerKind.PREPARE))
            world.hear(attempt, TimerDue(kind=TimerKind.GO))
        elif world.record.state is JobState.RUNNING:
            world.hear(attempt, TimerDue(kind=TimerKind.MAX_DURATION))
        else:
            for name in nodes:
                world.hear(attempt, Clean(node=name))
                world.hear(attempt + 1, Clean(node=name))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(-1, 1), facts), max_size=60))
def test_any_facts_in_any_order_leave_a_sound_job_that_comes_to_rest(history):
    world = World(NODES)
    for offset, fact in history:
        if world.record.state is JobState.QUEUED:
            world.place()
        world.hear(world.record.attempt + offset, fact)
    finish(world)
    assert world.record.state not in PLACED
    assert world.owned() == 0


@given(st.data())
def test_a_whole_life_with_repetitions_ends_in_success(data):
    """Evidence in causal order per phase, each piece repeated and shuffled inside its phase."""
    world = World(NODES)
    world.place()
    phases = [
        [Prepared(node=n, rendezvous="h:1") for n in NODES],
        [Started(node=n) for n in NODES],
        [Exited(node=n, outcomes=outcomes(n, StopReason.COMPLETED)) for n in NODES],
        [Clean(node=n) for n in NODES],
    ]
    old = []
    for phase in phases:
        for fact in data.draw(st.permutations(phase + phase[:1] + old)):
            world.hear(1, fact)
        old += phase[-1:]
    assert world.record.state is JobState.SUCCEEDED
    assert world.record.version == 2 + 1 + 3 + 3 + 3 + 3


@given(st.data())
def test_a_move_that_anything_happens_to_costs_the_job_nothing(data):
    """Whatever a successor's nodes say, in any order: the job trains here or goes on there."""
    world = World(NODES)
    world.place()
    for phase in (Prepared, Started):
        for name in NODES:
            world.hear(1, phase(node=name))
    world.hear(1, Progressed(step=3))
    world.hear(1, MOVE)
    of_successor = [Prepared(node=n) for n in SPARE.nodes] + [Warm(node=n) for n in SPARE.nodes]
    ends = [Clean(node="d"), Refused(node="e", reason="", message=""), NodeGone(node="d", why="")]
    for fact in data.draw(
        st.permutations(of_successor + data.draw(st.lists(st.sampled_from(ends), max_size=1)))
    ):
        world.hear(2, fact)
    moves = world.record.state is JobState.STOPPING
    assert moves or (world.record.state is JobState.RUNNING and world.record.successor.dropped)
    stopped = [Exited(node=n, outcomes=outcomes(n, StopReason.PREEMPTED)) for n in NODES]
    for fact in (*stopped, *(Clean(node=n) for n in NODES)) if moves else ():
        world.hear(1, fact)
    if moves and world.record.successor is not None:  # lost while the job saved
        for name in SPARE.nodes:
            world.hear(2, Clean(node=name))
    went_on = {JobState.STARTING: (2, SPARE), JobState.RUNNING: (1, world.gang)}
    if world.record.state is JobState.QUEUED:
        world.place()
        went_on[JobState.RESERVED] = (3, world.gang)
    assert (world.record.attempt, world.record.placement) == went_on[world.record.state]
    assert (world.record.retries, world.record.refusals) == (0, 0)


@given(st.lists(facts.filter(lambda fact: fact not in (CANCEL, MOVE)), max_size=30))
def test_facts_after_the_end_change_nothing(history):
    for state in TERMINAL:
        world = World(NODES)
        world.record = job(state, attempt=1, placement=world.gang)
        before = world.record
        for fact in history:
            world.hear(1, fact)
        assert world.record == before
