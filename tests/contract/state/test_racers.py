"""Many clients want the same devices: never two owners, never a gap in a version."""

import asyncio
import random

from tests.support.state import event, queue, release, reserve, up

from frenzy_shared.state.port import Change, Claim, Status
from frenzy_shared.state.redis import RedisStore

DEVICES = 6
JOBS = 12


async def test_claims_of_the_same_devices(valkey):
    stores = [await RedisStore.open(valkey.url) for _ in range(4)]
    epoch = await up(stores[0], "n1", DEVICES)
    for index in range(JOBS):
        await queue(stores[0], f"j{index}")
    gangs = {f"j{index}": racing_gang(index) for index in range(JOBS)}

    async def race(store, job, gang):
        claims = [Claim(node="n1", device=device, epoch=epoch) for device in gang]
        return job, await store.apply(f"{id(store)}:{job}", reserve(job, 1, *claims, version=2))

    answers = await asyncio.gather(
        *(race(store, job, gang) for job, gang in gangs.items() for store in stores)
    )

    winners = [job for job, result in answers if result.status is Status.OK]
    assert len(winners) == len(set(winners)), "a job was placed twice"
    assert {result.status for _, result in answers} <= {Status.OK, Status.TAKEN, Status.STALE}
    owners = (await stores[0].cluster()).owners
    expected = {f"n1/{device}": f"{job}#1" for job in winners for device in gangs[job]}
    assert sum(len(gangs[job]) for job in winners) == len(expected), "a device was given twice"
    assert {device: owner for device, owner in owners.items() if owner} == expected
    for store in stores:
        await store.close()


def racing_gang(index: int) -> list[str]:
    return [f"gpu-{number}" for number in random.Random(index).sample(range(DEVICES), 3)]


async def test_churn_keeps_every_invariant(valkey):
    """Place, stop, release and requeue concurrently; then look at the whole history."""
    stores = [await RedisStore.open(valkey.url) for _ in range(3)]
    epoch = await up(stores[0], "n1", DEVICES)
    for index in range(4):
        await queue(stores[0], f"j{index}")

    async def work(number: int) -> None:
        store, dice = stores[number % 3], random.Random(number)
        for step in range(25):
            op = f"{number}:{step}"
            record = await store.job(f"j{dice.randrange(4)}")
            gang = [f"gpu-{device}" for device in dice.sample(range(DEVICES), 2)]
            await store.apply(op, next_change(record, gang, epoch))

    await asyncio.gather(*(work(number) for number in range(9)))

    history: dict[str, list[int]] = {}
    for entry in await stores[0].read_outbox("", 10_000):
        history.setdefault(entry.entity, []).append(entry.version)
    owners = [owner for owner in (await stores[0].cluster()).owners.values() if owner]
    for index in range(4):
        record = await stores[0].job(f"j{index}")
        assert history[f"job:j{index}"] == list(range(1, record.version + 1))
        assert owners.count(f"j{index}#{record.attempt}") == record.owned_devices
        assert record.version > 5, "the race never got anywhere"
    for store in stores:
        await store.close()


def next_change(record, gang, epoch) -> Change:
    if record.state == "QUEUED":
        claims = [Claim(node="n1", device=device, epoch=epoch) for device in gang]
        return reserve(record.id, record.attempt + 1, *claims, version=record.version)
    if record.state == "RESERVED":
        return Change(
            entity=f"job:{record.id}",
            expect_version=record.version,
            patch={"state": "STOPPING"},
            outbox=[event("stopping", record.id)],
        )
    return Change(
        entity=f"job:{record.id}",
        expect_attempt=record.attempt,
        allowed_from=frozenset({"STOPPING"}),
        patch={"state": "QUEUED"},
        releases=[
            release(record.id, record.attempt, "n1", f"gpu-{device}") for device in range(DEVICES)
        ],
        outbox=[event("requeued", record.id)],
    )
