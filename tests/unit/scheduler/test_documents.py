"""Side documents of jobs are read once, however long the queue."""

import pytest
from tests.support.scheduler import Bench

from frenzy_scheduler import documents


@pytest.fixture
async def bench(monkeypatch):
    monkeypatch.setattr(documents, "_KEPT", 2)
    async with Bench() as bench:
        yield bench


async def test_a_queue_longer_than_what_is_kept_is_read_once(bench, monkeypatch):
    for number in range(9):
        await bench.queue(f"job{number}")
    read, spec = [], bench.store.spec

    async def counted(job):
        read.append(job)
        return await spec(job)

    monkeypatch.setattr(bench.store, "spec", counted)
    look = bench.scheduler._scheduling.look
    for _ in range(3):
        assert len((await look.at_everything()).queue) == 9
    assert sorted(read) == [f"job{number}" for number in range(9)]


async def test_what_nobody_asks_for_any_more_goes_first(bench, monkeypatch):
    look = bench.scheduler._scheduling.look
    kept = look.documents
    for number in range(4):
        await bench.queue(f"job{number}")
    await look.at_everything()
    assert list(kept._specs) == ["job0", "job1", "job2", "job3"]
    await kept.spec("job0")
    kept.make_room(3)
    await bench.queue("job4")
    await kept.spec("job4")
    assert list(kept._specs) == ["job3", "job0", "job4"]
