"""Timers are handed out again until a change clears them; a lease has one holder."""

from tests.support.state import submit

from frenzy_shared.state.port import Change, Status, Timer


async def test_a_timer_is_due_when_its_time_has_come(world):
    await submit(world.store, "j1")
    timers = [Timer(id="go:j1:1", after_s=60), Timer(id="prepare:j1:1", after_s=30)]
    await world.store.apply("op", Change(entity="job:j1", set_timers=timers))
    assert await world.store.due() == ()
    world.advance(31)
    assert [timer.id for timer in await world.store.due()] == ["prepare:j1:1"]
    world.advance(30)
    assert {timer.id for timer in await world.store.due()} == {"go:j1:1", "prepare:j1:1"}


async def test_a_due_timer_comes_again_until_cleared(world):
    await submit(world.store, "j1")
    change = Change(entity="job:j1", set_timers=[Timer(id="t", after_s=0)])
    await world.store.apply("op", change)
    assert len(await world.store.due()) == 1
    world.advance(29)
    assert await world.store.due() == ()
    world.advance(2)
    assert len(await world.store.due()) == 1
    await world.store.apply("clear", Change(entity="job:j1", clear_timers=["t", "never-set"]))
    world.advance(120)
    assert await world.store.due() == ()


async def test_setting_a_timer_again_moves_it(world):
    await submit(world.store, "j1")
    for index, after_s in enumerate((10, 100)):
        change = Change(entity="job:j1", set_timers=[Timer(id="t", after_s=after_s)])
        await world.store.apply(f"op{index}", change)
    world.advance(50)
    assert await world.store.due() == ()
    world.advance(51)
    assert len(await world.store.due()) == 1


async def test_clearing_and_setting_in_one_call_sets(world):
    await submit(world.store, "j1")
    change = Change(entity="job:j1", set_timers=[Timer(id="t", after_s=0)], clear_timers=["t"])
    await world.store.apply("op", change)
    assert len(await world.store.due()) == 1


async def test_due_is_limited_and_earliest_first(world):
    await submit(world.store, "j1")
    timers = [Timer(id=f"t{index}", after_s=10 - index) for index in range(5)]
    await world.store.apply("op", Change(entity="job:j1", set_timers=timers))
    world.advance(20)
    assert [timer.id for timer in await world.store.due(2)] == ["t4", "t3"]
    assert [timer.id for timer in await world.store.due(9)] == ["t2", "t1", "t0"]


async def test_a_lease_has_one_holder(world):
    store = world.store
    assert await store.acquire_lease("control", "a", 10)
    assert await store.acquire_lease("control", "a", 10)
    assert not await store.acquire_lease("control", "b", 10)
    assert await store.acquire_lease("other", "b", 10)


async def test_a_lease_ends_unless_renewed(world):
    store = world.store
    await store.acquire_lease("control", "a", 10)
    world.advance(6)
    await store.acquire_lease("control", "a", 10)
    world.advance(6)
    assert not await store.acquire_lease("control", "b", 10)
    world.advance(5)
    assert await store.acquire_lease("control", "b", 10)
    assert not await store.acquire_lease("control", "a", 10)


async def test_only_the_holder_gives_a_lease_up(world):
    store = world.store
    await store.acquire_lease("control", "a", 10)
    await store.release_lease("control", "b")
    assert not await store.acquire_lease("control", "b", 10)
    await store.release_lease("control", "a")
    assert await store.acquire_lease("control", "b", 10)
    await store.release_lease("nothing", "a")


async def test_a_change_under_an_ended_lease_is_refused(world):
    await submit(world.store, "j1")
    await world.store.acquire_lease("control", "a", 10)
    world.advance(11)
    change = Change(entity="job:j1", lease=("control", "a"), patch={"message": "x"})
    assert (await world.store.apply("op", change)).status is Status.LEASE
