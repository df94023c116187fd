"""Copies of a bench's store, put back; and what an administrator does about it."""

import copy

from tests.support.scheduler import Bench
from tests.support.scheduling import plan

from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import ReconcileReply, ReconcileRequest, Reconciliation
from frenzy_shared.state.tables import Tables


def saved(bench: Bench) -> Tables:
    tables = bench.store._tables
    tables.clock, clock = None, tables.clock
    copied = copy.deepcopy(tables)
    tables.clock = clock
    return copied


async def restore(bench: Bench, tables: Tables | None) -> None:
    """Put an old copy, or nothing, where the store's data was; its lease has ended."""
    clock = bench.store._tables.clock
    fresh = Tables(clock) if tables is None else tables
    fresh.clock = fresh.leases._clock = fresh._ops._clock = fresh.keys._clock = clock
    fresh.leases.drop("control")
    bench.store._tables = fresh
    bench.store._cursor = min(bench.store._cursor, fresh.outbox[-1].cursor if fresh.outbox else "")
    await bench.turn()  # the lease is lost
    await bench.turn()  # and taken anew


async def beat_all(bench: Bench) -> None:
    for agent in bench.agents.values():
        assert not (await agent.beat()).fenced


async def reconcile(
    bench: Bench, *, apply: bool = False, dead: tuple[str, ...] = ()
) -> Reconciliation:
    request = ReconcileRequest(apply=apply, dead=dead, by="ann").encode()
    reply = await bench.bus.request(subjects.SCHEDULER_RECONCILE, request, timeout_s=5)
    answer = ReconcileReply.decode(reply)
    assert not answer.error
    return answer.result


async def run(bench: Bench, job: str) -> None:
    await bench.queue(job, plan("p1", "rtx", 1))
    for _ in range(3):
        await bench.turn()
        await bench.obey_all()
    assert await bench.state(job) == "RUNNING"


async def finish(bench: Bench, job: str) -> None:
    record = await bench.job(job)
    (node,) = record.placement.nodes
    await bench.agents[node].exit(job, record.attempt, [0], StopReason.COMPLETED)
    await bench.turn()
    await bench.obey_all()
    await bench.turn()
    assert await bench.state(job) == "SUCCEEDED"


def why(bench: Bench) -> str:
    return bench.scheduler._safe_mode.why
