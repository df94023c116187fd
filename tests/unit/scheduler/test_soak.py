"""The leader's memory does not grow with the jobs that it has seen."""

import gc
import types
from collections import Counter

import pytest
from tests.support.scheduler import Bench
from tests.support.scheduling import plan

from frenzy_scheduler import documents
from frenzy_shared.domain.job import StopReason

_CONTAINERS = dict | list | set | tuple
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.CodeType)


def held(bench: Bench) -> Counter[str]:
    """Count what is reachable from the scheduler, its ports and metrics left out."""
    ports = (bench.store, bench.bus, bench.bus.broker, bench.clock, bench.scheduler.telemetry)
    seen = {id(port) for port in (*ports, bench.scheduler.archive, bench.scheduler._metrics)}
    todo: list[object] = [bench.scheduler]
    counts: Counter[str] = Counter()
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _OPAQUE):
            continue
        seen.add(id(value))
        counts[type(value).__name__] += len(value) if isinstance(value, _CONTAINERS) else 1
        if isinstance(value, _CONTAINERS) or type(value).__module__.startswith("frenzy"):
            todo += gc.get_referents(value)
    return counts


async def live(bench: Bench, job: str) -> None:
    await bench.queue(job, plan("p1", "rtx", 1))
    for _ in range(3):
        await bench.turn()
        await bench.obey_all()
    await bench.agents["n1"].exit(job, 1, [0], StopReason.COMPLETED)
    await bench.turn()
    await bench.obey_all()
    await bench.turn()
    assert await bench.state(job) == "SUCCEEDED"
    bench.agents["n1"].held.clear()
    bench.agents["n1"].sent.clear()


async def test_the_scheduler_holds_no_more_after_many_jobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "_KEPT", 8)
    async with Bench(retention_jobs=5) as bench:
        await bench.node("n1")
        seen = []
        for wave in range(4):
            for number in range(12):
                await live(bench, f"w{wave}-{number}")
            await bench.scheduler._retain()
            seen.append(held(bench))
    assert sum((await bench.store.counts()).values()) == 5
    grown = seen[-1] - seen[1]
    assert not {name: count for name, count in grown.items() if count > 3}, grown
