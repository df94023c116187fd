"""Random histories: memory and Valkey must answer every call alike, and no invariant may break.

Each call that took effect is made again with its operation id: the answer must be the same, the
effect must not. Composite rules lead jobs deep into their life; ``reached`` counts that they do.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.contract.state.ageing import age
from tests.support.state import FakeClock, registration, submission
from tests.support.valkey import ValkeyProcess

from frenzy_shared.domain.job import TERMINAL, JobState
from frenzy_shared.domain.project import Project
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import (
    Change,
    Claim,
    OutboxMessage,
    Release,
    Result,
    StateStore,
    Timer,
)
from frenzy_shared.state.redis import RedisStore

NODES = ("n1", "n2")
DEVICES = ("gpu-0", "gpu-1", "gpu-2")
JOBS = ("j1", "j2", "j3", "j4", "j5", "j6")
WAITING = frozenset({"SUBMITTED", "QUEUED"})
PLACED = frozenset({"RESERVED", "STARTING", "RUNNING"})
STOPPING = frozenset({"STOPPING"})
DEEP = ("RESERVED", "RUNNING", "STOPPING", "SUCCEEDED", "CANCELLED", "LOST", "TAKEN", "FENCED")

nodes, devices, jobs = st.sampled_from(NODES), st.sampled_from(DEVICES), st.sampled_from(JOBS)
gangs = st.lists(st.tuples(nodes, devices), min_size=1, max_size=3)
sizes = st.integers(1, 3)
job_states = st.sampled_from(sorted(JobState))
small = st.integers(0, 4)


class Machine(RuleBasedStateMachine):
    """Does everything to two stores. The memory's state chooses what is interesting next."""

    def __init__(
        self,
        runner: asyncio.Runner,
        valkey: ValkeyProcess,
        redis: RedisStore,
        reached: Counter[str],
    ) -> None:
        super().__init__()
        valkey.flush()
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock)
        self.redis, self.valkey, self.runner, self.reached = redis, valkey, runner, reached
        self.ops = 0

    # -- doing the same to both ---------------------------------------------------------------

    def both(self, call: Callable[[StateStore], Coroutine[Any, Any, Any]]) -> Any:
        expected = at_once(call(self.memory))
        assert self.runner.run(call(self.redis)) == expected
        return expected

    def change(self, call: Callable[[StateStore, str], Coroutine[Any, Any, Result]]) -> Result:
        self.ops += 1
        op = f"op-{self.ops}"
        result: Result = self.both(lambda store: call(store, op))
        self.reached[result.status] += 1
        if result.ok:
            assert self.both(lambda store: call(store, op)) == result
        return result

    def apply(self, entity: str, **parts: Any) -> Result:
        patch = parts.get("patch", {})
        outbox = [OutboxMessage(subject="frenzy.v1.evt.x", type="x")] if patch else []
        change = Change(entity=entity, outbox=outbox, **parts)
        result = self.change(lambda store, op: store.apply(op, change))
        if result.ok and "state" in patch:
            self.reached[patch["state"]] += 1
        return result

    def job(self, job: str) -> Any:
        return at_once(self.memory.job(job))

    def claims(self, gang: list[tuple[str, str]], wrong_epoch: int = 0) -> list[Claim]:
        known = {node.id: node.epoch for node in at_once(self.memory.cluster()).nodes}
        return [
            Claim(node=node, device=device, epoch=known.get(node, 1) + wrong_epoch)
            for node, device in gang
        ]

    def pick(self, states: frozenset[str], index: int) -> str:
        """Return a job in one of ``states``; any job when there is none."""
        records = [self.job(job) for job in JOBS]
        fitting = [record.id for record in records if record and record.state in states]
        return fitting[index % len(fitting)] if fitting else JOBS[index % len(JOBS)]

    def held(self, job: str) -> list[tuple[str, str]]:
        owners = at_once(self.memory.cluster()).owners
        return [
            tuple(key.split("/")) for key, owner in owners.items() if owner.startswith(f"{job}#")
        ]

    # -- nodes --------------------------------------------------------------------------------

    @initialize(size=sizes)
    def begin_deep(self, size: int) -> None:
        """Start every history with a running job, and another one refused its devices."""
        for node in NODES:
            self.register(node, set(DEVICES), 0)
        self.bring_up()
        for job in ("j1", "j2"):
            self.submit(job, "", "a", "p1")
        self.run_job("j1", size)
        self.apply("job:j2", allowed_from=WAITING, patch={"state": "QUEUED"})
        self.reserve_job("j2", self.held("j1"), 0)
        self.apply("job:j1", expect_attempt=2, patch={"last_step": 1})

    @rule(node=nodes, found=st.sets(devices, min_size=1), boot=st.integers(0, 1))
    def register(self, node: str, found: set[str], boot: int) -> None:
        wanted = registration(node, tuple(sorted(found)), boot_id=f"boot-{boot}")
        assert self.change(lambda store, op: store.register_node(op, wanted)).ok

    @rule(node=nodes, state=st.sampled_from(("UP", "SUSPECT", "LOST", "DRAINING")))
    def node_state(self, node: str, state: str) -> None:
        self.apply(f"node:{node}", patch={"state": state})

    def bring_up(self) -> None:
        for node in at_once(self.memory.cluster()).nodes:
            if node.state != "UP":
                self.node_state(node.id, "UP")

    @rule(node=nodes, device=devices, epoch=small, begin=st.booleans())
    def foreign_process(self, node: str, device: str, epoch: int, begin: bool) -> None:
        why = "!quarantine:foreign"
        given = Release(
            node=node, device=device, token="" if begin else why, to=why if begin else ""
        )
        self.apply(f"node:{node}", expect_epoch=epoch or None, releases=[given])

    # -- jobs ---------------------------------------------------------------------------------

    @rule(
        job=jobs,
        key=st.sampled_from(("", "", "shared")),
        body=st.sampled_from("ab"),
        project=st.sampled_from(("p1", "p2")),
    )
    def submit(self, job: str, key: str, body: str, project: str) -> None:
        wanted = submission(job, key=key, body=body, project=project, labels=(("body", body),))
        self.change(lambda store, op: store.submit(op, wanted))

    @rule(name=st.sampled_from(("p1", "p2")), limit=st.integers(1, 4))
    def quota(self, name: str, limit: int) -> None:
        project = Project(name=name, max_unfinished_jobs=limit)
        self.both(lambda store: store.put_project(project))

    @rule(index=small, gang=gangs, wrong_epoch=st.sampled_from((0, 0, 0, 1)))
    def reserve(self, index: int, gang: list[tuple[str, str]], wrong_epoch: int) -> None:
        self.reserve_job(self.pick(frozenset({"QUEUED"}), index), gang, wrong_epoch)

    @rule(size=sizes)
    def reserve_what_is_taken(self, size: int) -> None:
        """Two jobs want the same devices: the second is refused."""
        self.bring_up()
        for index in range(2):
            job = self.pick(WAITING, index)
            self.apply(f"job:{job}", allowed_from=WAITING, patch={"state": "QUEUED"})
            self.reserve_job(job, [("n1", device) for device in DEVICES[:size]], 0)

    def reserve_job(self, job: str, gang: list[tuple[str, str]], wrong_epoch: int) -> None:
        record = self.job(job)
        self.apply(
            f"job:{job}",
            allowed_from=frozenset({"QUEUED"}),
            patch={"state": "RESERVED", "attempt": record.attempt + 1 if record else 1},
            claims=self.claims(gang, wrong_epoch),
            set_timers=[Timer(id=f"prepare:{job}", after_s=30)],
        )

    @rule(index=small, size=sizes)
    def run(self, index: int, size: int) -> None:
        self.run_job(self.pick(WAITING, index), size)

    def run_job(self, job: str, size: int) -> None:
        """Lead a waiting job to RUNNING on free devices, as far as the cluster has them."""
        if self.job(job) is None:
            self.submit(job, "", "a", "p1")
        self.bring_up()
        owners = at_once(self.memory.cluster()).owners
        free = [tuple(key.split("/")) for key, owner in owners.items() if not owner]
        self.apply(f"job:{job}", allowed_from=frozenset({"SUBMITTED"}), patch={"state": "QUEUED"})
        self.reserve_job(job, free[:size], 0)
        for source, target in (("RESERVED", "STARTING"), ("STARTING", "RUNNING")):
            self.apply(
                f"job:{job}",
                allowed_from=frozenset({source}),
                patch={"state": target, "started": ["n1"]},
                clear_timers=[f"prepare:{job}"],
            )

    @rule(index=small, attempt=small, step=small)
    def progress(self, index: int, attempt: int, step: int) -> None:
        self.apply(
            f"job:{self.pick(PLACED, index)}", expect_attempt=attempt, patch={"last_step": step}
        )

    @rule(index=small, gang=gangs)
    def get_ready(self, index: int, gang: list[tuple[str, str]]) -> None:
        """A running job's next attempt claims devices beside it, or takes over."""
        job = self.pick(frozenset({"RUNNING"}), index)
        record = self.job(job)
        attempt = record.attempt + 1 if record else 2
        self.apply(
            f"job:{job}",
            allowed_from=frozenset({"RUNNING"}),
            patch={"message": "moving"},
            claims=self.claims(gang),
            claim_attempt=attempt,
        )

    @rule(index=small)
    def take_over(self, index: int) -> None:
        job = self.pick(STOPPING, index)
        record = self.job(job)
        attempt = record.attempt + 1 if record else 2
        patch = {"state": "STARTING", "attempt": attempt}
        self.apply(f"job:{job}", allowed_from=STOPPING, patch=patch)

    @rule(index=small, reason=st.sampled_from(("Completed", "ByUser", "NodeLost")))
    def stop(self, index: int, reason: str) -> None:
        self.stop_job(self.pick(PLACED, index), reason)

    @rule(index=small, how_many=sizes, to=st.sampled_from(("", "!quarantine:lost")))
    def give_up(self, index: int, how_many: int, to: str) -> None:
        self.give_up_devices(self.pick(PLACED | STOPPING, index), how_many, to)

    @rule(index=small, end=st.sampled_from(("SUCCEEDED", "CANCELLED", "QUEUED", "SUBMITTED")))
    def end(self, index: int, end: str) -> None:
        self.end_job(self.pick(STOPPING, index), end)

    @rule(index=small, size=sizes, end=st.sampled_from(("SUCCEEDED", "FAILED", "QUEUED")))
    def live(self, index: int, size: int, end: str) -> None:
        """Lead a job through its whole life."""
        job = self.pick(WAITING, index)
        self.run_job(job, size)
        self.stop_job(job, "Completed")
        self.give_up_devices(job, 1, "")
        self.end_job(job, end)

    def stop_job(self, job: str, reason: str) -> None:
        patch = {"state": "STOPPING", "reason": reason}
        self.apply(f"job:{job}", allowed_from=PLACED, patch=patch)

    def give_up_devices(self, job: str, how_many: int, to: str) -> None:
        self.apply(f"job:{job}", releases=self.releases(job, to)[:how_many])

    def end_job(self, job: str, end: str) -> None:
        self.apply(
            f"job:{job}",
            allowed_from=STOPPING,
            patch={"state": end, "placement": None},
            releases=self.releases(job, ""),
        )

    def releases(self, job: str, to: str) -> list[Release]:
        record = self.job(job)
        attempt = record.attempt if record else 1
        return [
            Release(node=node, device=device, token=f"{job}#{number}", to=to)
            for node, device in self.held(job)
            for number in (attempt, attempt + 1)
        ]

    @rule(index=small)
    def cancel(self, index: int) -> None:
        job = self.pick(WAITING, index)
        self.apply(f"job:{job}", allowed_from=WAITING, patch={"state": "CANCELLED"})

    @rule(
        job=jobs,
        version=st.none() | small,
        attempt=st.none() | small,
        allowed=st.frozensets(job_states, max_size=3),
        state=st.none() | job_states,
        gang=st.lists(st.tuples(nodes, devices), max_size=1),
        token=st.sampled_from(("#1", "#2")),
        lease=st.none() | st.tuples(st.just("control"), st.sampled_from("ab")),
        pending=st.none() | st.just({"reason": "WaitingForCapacity"}),
    )
    def anything(self, job, version, attempt, allowed, state, gang, token, lease, pending) -> None:
        self.apply(
            f"job:{job}",
            expect_version=version,
            expect_attempt=attempt,
            allowed_from=allowed,
            lease=lease,
            patch={"message": "any"} | ({} if state is None else {"state": state}),
            documents={"pending": pending},
            releases=[Release(node=n, device=d, token=job + token) for n, d in gang],
            set_timers=[Timer(id=f"any:{job}", after_s=0)],
        )

    # -- time ---------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 3))
    def due(self, limit: int) -> None:
        fired = at_once(self.memory.due(limit))
        other = self.runner.run(self.redis.due(limit))
        assert len(fired) == len(other)
        assert {timer.id for timer in fired} == {timer.id for timer in other} or limit < 3

    @rule(holder=st.sampled_from("ab"), keep=st.booleans())
    def lease(self, holder: str, keep: bool) -> None:
        if keep:
            self.both(lambda store: store.acquire_lease("control", holder, 1000))
        else:
            self.both(lambda store: store.release_lease("control", holder))

    @precondition(lambda self: self.ops > 5)
    @rule(seconds=st.sampled_from((31.0, 1001.0)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        age(self.valkey, seconds)

    @rule(how_many=st.integers(1, 4))
    def relay(self, how_many: int) -> None:
        for store in (self.memory, self.redis):
            entries = self.runner.run(store.read_outbox("", how_many))
            if entries:
                self.runner.run(store.advance_outbox(entries[-1].cursor))
        assert self.both(lambda store: store.health()).reachable

    @rule(
        states=st.frozensets(job_states, max_size=2),
        size=st.integers(1, 3),
        body=st.sampled_from("ab"),
    )
    def list_all_pages(self, states: frozenset[JobState], size: int, body: str) -> None:
        async def pages(store: StateStore) -> list[str]:
            found, token = [], ""
            while True:
                page = await store.list_jobs(
                    project="p1",
                    states=states,
                    page_size=size,
                    page_token=token,
                    labels={"body": body},
                )
                found += [job.id for job in page.jobs]
                token = page.next_token
                if not token:
                    return found

        self.both(pages)

    # -- what must always hold ----------------------------------------------------------------

    @invariant()
    def owners_agree_with_jobs(self) -> None:
        owners = Counter(at_once(self.memory.cluster()).owners.values())
        for job in JOBS:
            record = self.job(job)
            if record is not None:
                held = sum(count for owner, count in owners.items() if owner.startswith(f"{job}#"))
                assert held == record.owned_devices
                assert not held or record.state not in TERMINAL | {"SUBMITTED", "QUEUED"}

    def teardown(self) -> None:
        """Compare everything, and the history with the present."""
        assert self.runner.run(contents(self.redis)) == self.runner.run(contents(self.memory))
        history: dict[str, list[int]] = {}
        for entry in self.runner.run(self.redis.read_outbox("0-0", 10_000)):
            history.setdefault(entry.entity, []).append(entry.version)
        for entity, versions in history.items():
            assert versions == list(range(1, len(versions) + 1)), f"{entity} has gaps"


def at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """Run a call that never waits, as the memory's never do, without an event loop."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the memory waited")


async def contents(store: StateStore) -> list[Any]:
    """Everything a store holds, without times and cursors."""
    live = frozenset(JobState) - TERMINAL
    found: list[Any] = [await store.counts(), (await store.health()).outbox_lag]
    found += [replace(job, **no_times()) for job in await store.jobs_in(live)]
    for job in JOBS:
        record = await store.job(job)
        found += [record and replace(record, **no_times()), await store.pending(job)]
        found += [{**entry, "time_ms": 0} for entry in await store.timeline(job)]
    cluster = await store.cluster()
    found += [cluster.owners, *(replace(node, updated_ms=0) for node in cluster.nodes)]
    start = "0-0" if isinstance(store, RedisStore) else "0"
    for entry in await store.read_outbox(start, 10_000):
        record = {**entry.record, "created_ms": 0, "updated_ms": 0}
        found.append(replace(entry, cursor="", time_ms=0, record=record))
    return found


def no_times() -> dict[str, int]:
    return {"created_ms": 0, "updated_ms": 0}


def test_memory_and_valkey_agree(valkey: ValkeyProcess) -> None:
    reached: Counter[str] = Counter()
    with asyncio.Runner() as runner:
        redis = runner.run(RedisStore.open(valkey.url))
        try:
            run_state_machine_as_test(
                lambda: Machine(runner, valkey, redis, reached),
                settings=settings(
                    max_examples=30,
                    stateful_step_count=40,
                    deadline=None,
                    derandomize=True,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(redis.close())
    missed = [name for name in DEEP if not reached[name]]
    assert not missed, f"never reached: {missed} of {reached}"
