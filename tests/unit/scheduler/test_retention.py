"""What finished jobs leave behind, and for how long."""

import json
from collections.abc import AsyncIterator

import pytest
from tests.support.scheduler import Bench, cancel_job, submit_job

from frenzy_scheduler.adapters.archive import FolderArchive
from frenzy_shared.domain.job import JobState
from frenzy_shared.errors import StorageFull

DAY_S = 86_400


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench(retention_s=DAY_S, retention_jobs=5) as made:
        yield made


async def over(bench: Bench, *jobs: str) -> None:
    for job in jobs:
        await submit_job(bench.store, job)
        assert await cancel_job(bench.store, job) is JobState.CANCELLED
        bench.clock.advance(1)


async def look(bench: Bench) -> None:
    await bench.scheduler._lead()
    await bench.scheduler._retain()


async def kept(bench: Bench) -> list[str]:
    page = await bench.store.list_jobs(
        project=None, states=frozenset(), page_size=1000, page_token="", labels={}
    )
    return [job.id for job in page.jobs]


async def test_old_jobs_are_archived_and_forgotten_and_waiting_ones_stay(bench):
    await over(bench, "old")
    await submit_job(bench.store, "waiting")
    bench.clock.advance(DAY_S)
    await over(bench, "new")
    await look(bench)
    assert await kept(bench) == ["new", "waiting"]
    (line,) = bench.scheduler.archive.jobs
    assert line["record"]["id"] == "old"
    assert line["spec"]["model"] == "gpt2"
    assert [entry["state"] for entry in line["timeline"]] == ["SUBMITTED", "CANCELLED"]


async def test_beyond_their_number_the_oldest_go(bench):
    await over(bench, *"abcdefgh")
    await look(bench)
    assert await kept(bench) == list("hgfed")
    await look(bench)
    assert len(await kept(bench)) == 5


async def test_more_than_a_batch_in_one_look(bench):
    await over(bench, *(f"j{number}" for number in range(250)))
    await look(bench)
    assert len(await kept(bench)) == 5
    assert len(bench.scheduler.archive.jobs) == 245


async def test_a_follower_forgets_nothing(bench):
    await over(bench, *"abcdefgh")
    bench.scheduler.leadership.lose()
    await bench.scheduler._retain()
    assert len(await kept(bench)) == 8


async def test_nothing_is_forgotten_that_could_not_be_archived(bench):
    class Full:
        async def append(self, job, finished_ms):
            raise StorageFull("the disk is full")

    await over(bench, *"abcdefgh")
    bench.scheduler._retention.archive = Full()
    with pytest.raises(StorageFull):
        await look(bench)
    assert len(await kept(bench)) == 8


async def test_the_archive_is_a_line_a_job_in_a_file_a_month(tmp_path):
    archive = FolderArchive(tmp_path / "archive")
    november, december = 1_796_000_000_000, 1_797_000_000_000
    await archive.append({"record": {"id": "a"}}, november)
    path = tmp_path / "archive" / "jobs-2026-11.jsonl"
    with path.open("ab") as file:
        file.write(b'{"record": {"id": "half')  # a crash
    await archive.append({"record": {"id": "b"}}, november)
    await archive.append({"record": {"id": "c"}}, december)
    first, half, second = path.read_text().splitlines()
    assert [json.loads(line)["record"]["id"] for line in (first, second)] == ["a", "b"]
    assert half.endswith("half")
    assert (tmp_path / "archive" / "jobs-2026-12.jsonl").exists()
