"""Listing: newest first, by pages that new arrivals do not shift."""

import pytest
from tests.support.state import move, queue, submit

from frenzy_shared.domain.job import JobState
from frenzy_shared.errors import BadRequest


async def ids(store, *, project=None, states=frozenset(), page_size=100, page_token="", **labels):
    page = await store.list_jobs(
        project=project,
        states=frozenset(states),
        page_size=page_size,
        page_token=page_token,
        labels=labels,
    )
    return [job.id for job in page.jobs], page.next_token


async def test_nothing(store):
    assert await ids(store) == ([], "")
    assert await store.jobs_in(frozenset({JobState.QUEUED})) == ()


async def test_newest_first_page_by_page(store):
    for index in range(5):
        await submit(store, f"j{index}")
    first, token = await ids(store, page_size=2)
    await submit(store, "newer")
    second, token = await ids(store, page_size=2, page_token=token)
    third, end = await ids(store, page_size=2, page_token=token)
    assert (first, second, third, end) == (["j4", "j3"], ["j2", "j1"], ["j0"], "")


async def test_a_full_last_page_says_that_it_is_the_last(store):
    await submit(store, "j0")
    await submit(store, "j1")
    assert await ids(store, page_size=2) == (["j1", "j0"], "")


async def test_filters_combine(store):
    await submit(store, "a1", project="a", labels=(("team", "x"), ("run", "1")))
    await queue(store, "a2", project="a", labels=(("team", "x"), ("run", "2")))
    await queue(store, "a3", project="a", labels=(("team", "y"),))
    await queue(store, "b1", project="b", labels=(("team", "x"),))
    assert (await ids(store, project="a"))[0] == ["a3", "a2", "a1"]
    assert (await ids(store, states={JobState.QUEUED}))[0] == ["b1", "a3", "a2"]
    assert (await ids(store, states={JobState.QUEUED, JobState.SUBMITTED}))[0] == [
        "b1",
        "a3",
        "a2",
        "a1",
    ]
    assert (await ids(store, team="x"))[0] == ["b1", "a2", "a1"]
    assert (await ids(store, team="x", run="2"))[0] == ["a2"]
    assert (await ids(store, project="a", states={JobState.QUEUED}, team="x"))[0] == ["a2"]
    assert (await ids(store, project="none"))[0] == []
    assert (await ids(store, team="z"))[0] == []


async def test_filtered_pages_are_full(store):
    for index in range(9):
        await submit(store, f"j{index}", labels=(("odd", str(index % 2)),))
    first, token = await ids(store, page_size=2, odd="0")
    second, token = await ids(store, page_size=2, page_token=token, odd="0")
    third, end = await ids(store, page_size=2, page_token=token, odd="0")
    assert (first, second, third, end) == (["j8", "j6"], ["j4", "j2"], ["j0"], "")


async def test_terminal_jobs_are_listed(store):
    await queue(store, "j1")
    await move(store, "j1", "CANCELLED")
    assert await ids(store, states={JobState.CANCELLED}) == (["j1"], "")


@pytest.mark.parametrize(
    "token", ["x", "before-", "before-x", "before-0", "before--1", "before-1 "]
)
async def test_refuses_a_token_of_others(store, token):
    with pytest.raises(BadRequest, match="page token"):
        await ids(store, page_token=token)


@pytest.mark.parametrize("size", [0, -1])
async def test_refuses_an_empty_page(store, size):
    with pytest.raises(BadRequest, match="page_size"):
        await ids(store, page_size=size)


async def test_jobs_in_states_by_arrival(store):
    for job in ("c", "a", "b"):
        await queue(store, job)
    await submit(store, "new")
    await move(store, "a", "CANCELLED")

    async def found(*states):
        return [job.id for job in await store.jobs_in(frozenset(states))]

    assert await found(JobState.QUEUED) == ["c", "b"]
    assert await found(JobState.QUEUED, JobState.SUBMITTED) == ["c", "b", "new"]
    assert await found() == []


async def test_finished_jobs_are_never_read_all_at_once(store):
    with pytest.raises(ValueError, match="SUCCEEDED"):
        await store.jobs_in(frozenset({JobState.SUCCEEDED, JobState.QUEUED}))


async def test_a_requeued_job_keeps_its_place(store):
    await queue(store, "old")
    await queue(store, "young")
    for state in ("RESERVED", "STOPPING", "QUEUED"):
        assert (await move(store, "old", state)).ok
    assert [job.id for job in await store.jobs_in(frozenset({JobState.QUEUED}))] == ["old", "young"]


async def test_counts_cover_every_state(store):
    await queue(store, "j1")
    await submit(store, "j2")
    await submit(store, "j3")
    counts = await store.counts()
    assert set(counts) == {state.value for state in JobState}
    assert (counts["QUEUED"], counts["SUBMITTED"], counts["RUNNING"]) == (1, 2, 0)
