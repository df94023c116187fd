"""Noted runs: once each, bounded per group and in groups, and readable from where one stopped."""

import asyncio

KEEP = {"keep": 3, "groups": 2}


async def names(store, after=0):
    return [group.name for group in await store.run_groups(after)]


async def test_a_run_is_noted_once(store):
    assert await store.note_run("a", "job-1#1", {"peak": 1, "text": "é x"}, **KEEP)
    assert not await store.note_run("a", "job-1#1", {"peak": 2}, **KEEP)
    assert await store.note_run("a", "job-1#11", {"peak": 3}, **KEEP)
    (group,) = await store.run_groups(0)
    assert group.runs == ({"peak": 1, "text": "é x"}, {"peak": 3})


async def test_a_group_keeps_its_newest_runs(store):
    for number in range(5):
        await store.note_run("a", f"job#{number}", {"number": number}, **KEEP)
    (group,) = await store.run_groups(0)
    assert [run["number"] for run in group.runs] == [2, 3, 4]
    assert group.revision == 5


async def test_the_groups_that_changed_last_stay(store):
    for number, name in enumerate(("a", "b", "a", "c")):
        await store.note_run(name, f"job#{number}", {}, **KEEP)
    assert await names(store) == ["a", "c"]


async def test_a_dropped_group_begins_anew(store):
    for name in ("a", "b", "c", "a"):
        await store.note_run(name, f"{name}#1", {"of": name}, **KEEP)
    assert await names(store) == ["c", "a"]
    assert [len(group.runs) for group in await store.run_groups(0)] == [1, 1]


async def test_reading_goes_on_after_a_revision(store):
    await store.note_run("a", "1", {}, **KEEP)
    await store.note_run("b", "2", {}, **KEEP)
    first, second = await store.run_groups(0)
    assert await names(store, first.revision) == ["b"]
    assert await store.run_groups(second.revision) == ()
    await store.note_run("a", "3", {}, **KEEP)
    (again,) = await store.run_groups(second.revision)
    assert (again.name, len(again.runs)) == ("a", 2)


async def test_what_is_read_cannot_change_the_store(store):
    await store.note_run("a", "1", {"peaks": [1]}, **KEEP)
    (group,) = await store.run_groups(0)
    group.runs[0]["peaks"].append(2)
    assert (await store.run_groups(0))[0].runs == ({"peaks": [1]},)


async def test_many_at_once_are_each_noted_once(store):
    notes = [store.note_run("a", f"j#{n % 3}", {"n": n % 3}, **KEEP) for n in range(12)]
    assert sum(await asyncio.gather(*notes)) == 3
