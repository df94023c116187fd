"""Months of jobs in seconds: what the store holds must not grow with what it has done."""

import asyncio
from collections import Counter

import pytest
from tests.contract.state.ageing import age
from tests.support.state import FakeClock, event, release, reserve, submission, up

from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import Change, Claim, Timer
from frenzy_shared.state.redis import RedisStore

WAVES, JOBS, KEPT = 4, 40, 12
MONTH_S = 30 * 86_400


async def life(store, job, epoch, device):
    """One job from its submission to its end, with all that it leaves behind."""
    await store.submit(f"submit:{job}", submission(job))
    plans = {"plans": {"plans": [], "refused": [], "kinds_digest": "k", "message": ""}}
    change = Change(entity=f"job:{job}", patch={"state": "QUEUED"}, documents=plans)
    await store.apply(f"plan:{job}", change)
    claim = Claim(node="n1", device=device, epoch=epoch)
    assert (await store.apply(f"place:{job}", reserve(job, 1, claim))).ok
    await store.append_series(job, [{"step": 1}])
    done = Change(
        entity=f"job:{job}",
        patch={"state": "FAILED"},
        releases=[release(job, 1, "n1", device)],
        set_timers=[Timer(id=f"stop:{job}:1", after_s=60)],
        outbox=[event("failed", job)],
    )
    assert (await store.apply(f"end:{job}", done)).ok


async def wave(store, number, epoch):
    async def line(device):
        for job in range(JOBS // 4):
            await life(store, f"w{number}-{device}-{job}", epoch, device)

    await asyncio.gather(*(line(f"gpu-{index}") for index in range(4)))
    finished = await store.oldest_finished(10 * JOBS)
    for record in finished[:-KEPT]:
        timers = [f"stop:{record.id}:1"]
        assert (await store.forget(record.id, version=record.version, timers=timers)).ok
    entries = await store.read_outbox("", 10_000)
    await store.advance_outbox(entries[-1].cursor)


def sizes_on(server):
    """Count keys by their kind, and members of what holds many."""
    sizes = Counter()
    with server.client() as client:
        for key in client.scan_iter("{frenzy}:*", count=1000):
            kind = key.split(":")[1]
            sizes[f"keys of {kind}"] += 1
            count = {"zset": client.zcard, "set": client.scard, "hash": client.hlen}
            measure = count.get(client.type(key))
            if measure is not None and kind not in ("job", "outbox"):
                sizes[f"members of {key}"] = measure(key)
    return sizes


def sizes_in(store):
    tables = store._tables
    return Counter(
        {
            name: len(value)
            for name, value in vars(tables).items()
            if hasattr(value, "__len__") and not isinstance(value, str) and name != "outbox"
        }
    )


async def test_a_server_holds_no_more_after_many_months(valkey):
    store = await RedisStore.open(valkey.url)
    epoch = await up(store, "n1", 4)
    seen = []
    for number in range(WAVES):
        await wave(store, number, epoch)
        age(valkey, MONTH_S)
        seen.append(sizes_on(valkey))
    await store.close()
    assert seen[1]["members of {frenzy}:jobs"] == KEPT
    assert seen[1] == seen[2] == seen[-1]


@pytest.mark.parametrize("waves", [20])
async def test_memory_holds_no_more_after_many_months(waves):
    clock = FakeClock()
    store = MemoryStore(clock)
    epoch = await up(store, "n1", 4)
    seen = []
    for number in range(waves):
        await wave(store, number, epoch)
        clock.advance(MONTH_S)
        seen.append(sizes_in(store))
    assert seen[1]["finished"] == KEPT
    assert seen[1] == seen[2] == seen[-1]
