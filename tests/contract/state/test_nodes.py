"""Registration: epochs that fence, inventories that change, reboots that prove."""

from dataclasses import replace

from tests.support.state import move, placed, registration, release, up

from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.state.port import Change, Release, Status


async def test_a_new_node_joins(store):
    wanted = registration("n1")
    result = await store.register_node("op", wanted)
    assert (result.status, result.id) == (Status.OK, "n1")
    assert (result.version, result.epoch) == (1, 1)
    node = await store.node("n1")
    assert (node.state, node.boot_id, node.address) == (NodeState.JOINING, "boot-1", "127.0.1.1")
    assert node.devices == wanted.devices
    assert node.updated_ms > 0
    snapshot = await store.cluster()
    assert snapshot.nodes == (node,)
    assert snapshot.owners == {"n1/gpu-0": "", "n1/gpu-1": ""}


async def test_each_registration_is_an_epoch(store):
    await up(store, "n1")
    result = await store.register_node("op", registration("n1"))
    assert (result.version, result.epoch) == (3, 2)
    assert await store.register_node("op", registration("n1")) == result
    node = await store.node("n1")
    assert (node.state, node.epoch, node.version) == (NodeState.JOINING, 2, 3)


async def test_an_epoch_may_be_asked_to_be_high_and_goes_on_from_there(store):
    high = replace(registration("n1"), least_epoch=1_800_000_000)
    assert (await store.register_node("op", high)).epoch == 1_800_000_000
    assert (await store.node("n1")).epoch == 1_800_000_000
    assert (await store.register_node("again", registration("n1"))).epoch == 1_800_000_001
    assert (await store.register_node("low", replace(high, least_epoch=5))).epoch == 1_800_000_002


async def test_nodes_are_listed_by_name(store):
    for name in ("b", "c", "a"):
        await store.register_node(name, registration(name, 1))
    snapshot = await store.cluster()
    assert [node.id for node in snapshot.nodes] == ["a", "b", "c"]
    assert list(snapshot.owners) == ["a/gpu-0", "b/gpu-0", "c/gpu-0"]


async def test_names_that_begin_alike_do_not_mix(store):
    await store.register_node("op1", registration("n1", 1))
    await store.register_node("op10", registration("n10", 1))
    await store.register_node("op1b", registration("n1", ("new",)))
    assert (await store.cluster()).owners == {"n1/new": "", "n10/gpu-0": ""}


async def test_owners_outlive_registrations(store):
    await placed(store)
    await store.register_node("op", registration("n1", ("gpu-1", "gpu-2")))
    assert (await store.cluster()).owners == {
        "n1/gpu-0": "j1#1",  # vanished while owned
        "n1/gpu-1": "j1#1",
        "n1/gpu-2": "",
    }
    await move(store, "j1", "STOPPING")
    gone = Change(
        entity="job:j1",
        patch={"state": "FAILED"},
        releases=[release("j1", 1, "n1", "gpu-0"), release("j1", 1, "n1", "gpu-1")],
    )
    assert (await store.apply("end", gone)).ok
    assert (await store.cluster()).owners == {"n1/gpu-1": "", "n1/gpu-2": ""}


async def quarantined(store):
    """A node with one device of each fate."""
    await placed(store, devices=2)
    await move(store, "j1", "STOPPING")
    lost = [
        release("j1", 1, "n1", f"gpu-{index}", to="!quarantine:lost j1#1") for index in range(2)
    ]
    await store.apply("lose", Change(entity="job:j1", patch={"state": "QUEUED"}, releases=lost))
    await store.register_node("grow", registration("n1", 3))
    foreign = Release(node="n1", device="gpu-2", token="", to="!quarantine:foreign pid 1")
    await store.apply("foreign", Change(entity="node:n1", releases=[foreign]))


async def test_a_reboot_lifts_lost_quarantines_only(store):
    await quarantined(store)
    await store.register_node("boot", registration("n1", 3, boot_id="boot-2"))
    assert (await store.cluster()).owners == {
        "n1/gpu-0": "",
        "n1/gpu-1": "",
        "n1/gpu-2": "!quarantine:foreign pid 1",
    }


async def test_the_same_boot_keeps_quarantines(store):
    await quarantined(store)
    await store.register_node("again", registration("n1", 3))
    owners = (await store.cluster()).owners
    assert owners["n1/gpu-0"] == owners["n1/gpu-1"] == "!quarantine:lost j1#1"


async def test_a_reboot_without_the_lost_device_forgets_it(store):
    await quarantined(store)
    await store.register_node("boot", registration("n1", ("gpu-1",), boot_id="boot-2"))
    assert (await store.cluster()).owners == {
        "n1/gpu-1": "",
        "n1/gpu-2": "!quarantine:foreign pid 1",
    }


async def test_a_reboot_keeps_what_an_attempt_owns(store):
    await placed(store)
    await store.register_node("boot", registration("n1", boot_id="boot-2"))
    assert set((await store.cluster()).owners.values()) == {"j1#1"}


async def test_a_registration_replaces_address_and_devices(store):
    await up(store, "n1")
    await store.apply("why", Change(entity="node:n1", patch={"reason": "slow"}))
    moved = replace(registration("n1", 1), address="127.0.1.9")
    await store.register_node("op", moved)
    node = await store.node("n1")
    assert (node.address, node.devices, node.reason) == ("127.0.1.9", moved.devices, "")


async def test_a_drain_and_strikes_outlive_registrations(store):
    await up(store, "n1")
    patch = {"drain": "new fan", "strikes": [{"time_ms": 1, "job": "j1"}]}
    await store.apply("drain", Change(entity="node:n1", patch=patch))
    await store.register_node("op", registration("n1", boot_id="boot-2"))
    node = await store.node("n1")
    assert (node.state, node.drain) == (NodeState.JOINING, "new fan")
    assert [strike.job for strike in node.strikes] == ["j1"]
