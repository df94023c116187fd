"""What the adapter demands of the server, and how its failures read."""

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest
import redis
from redis.exceptions import ResponseError
from tests.support.state import move, submission, submit
from tests.support.valkey import ValkeyProcess

from frenzy_shared.errors import FrenzyError, Misconfigured, StorageFull, Unavailable
from frenzy_shared.state import server
from frenzy_shared.state.port import Change
from frenzy_shared.state.redis import RedisStore


@pytest.mark.parametrize(
    ("option", "value"),
    [("appendonly", "no"), ("appendfsync", "everysec"), ("maxmemory-policy", "allkeys-lru")],
)
async def test_refuses_a_server_that_loses_jobs(fresh_valkey, option, value):
    with fresh_valkey.client() as client:
        client.config_set(option, value)
    with pytest.raises(Misconfigured, match=f"{option} is '{value}'") as refused:
        await RedisStore.open(fresh_valkey.url)
    assert any("deploy/valkey/valkey.conf" in hint for hint in refused.value.suggestions)
    with fresh_valkey.client() as client:
        assert client.function_list() == []


async def test_names_every_wrong_setting(fresh_valkey):
    with fresh_valkey.client() as client:
        client.config_set("appendfsync", "no")
        client.config_set("maxmemory-policy", "volatile-ttl")
    with pytest.raises(Misconfigured, match=r"appendfsync.*maxmemory-policy"):
        await RedisStore.open(fresh_valkey.url)


async def test_loads_the_functions_once(fresh_valkey):
    for _ in range(2):
        store = await RedisStore.open(fresh_valkey.url)
        await store.close()
    with fresh_valkey.client() as client:
        assert library(client)["library_name"] == "frenzy1"
        loads = client.info("commandstats")["cmdstat_function|load"]["calls"]
    assert loads == 1


async def test_replaces_older_functions(fresh_valkey):
    load_version(fresh_valkey, 0)
    store = await RedisStore.open(fresh_valkey.url)
    await submit(store, "j1")
    await store.close()


async def test_refuses_newer_functions(fresh_valkey):
    load_version(fresh_valkey, 9999)
    with pytest.raises(Misconfigured, match="version 9999"):
        await RedisStore.open(fresh_valkey.url)
    with fresh_valkey.client() as client:
        assert server.functions_version(library(client)["library_code"]) == 9999


def library(client) -> dict[str, str]:
    (flat,) = client.function_list(withcode=True)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def load_version(valkey: ValkeyProcess, version: int) -> None:
    ours = server.functions_code()
    present = f"local VERSION = {server.functions_version(ours)} "
    assert present in ours
    with valkey.client() as client:
        client.function_load(ours.replace(present, f"local VERSION = {version} "))


async def test_says_when_the_functions_are_gone(fresh_valkey):
    store = await RedisStore.open(fresh_valkey.url)
    with fresh_valkey.client() as client:
        client.function_flush()
    with pytest.raises(Misconfigured, match="lost Frenzy's functions"):
        await store.submit("op", submission("j1"))
    await store.close()


async def test_a_wrong_password_is_not_waited_for(tmp_path):
    valkey = ValkeyProcess(tmp_path, password="right").start()
    try:
        for url in (valkey.url.replace("right", "wrong"), f"redis://127.0.0.1:{valkey.port}/0"):
            with pytest.raises(Misconfigured, match="refused this service's account"):
                await RedisStore.open(url)
        store = await RedisStore.open(valkey.url)
        await submit(store, "j1")
        await store.close()
    finally:
        valkey.stop()


async def test_an_account_without_rights_is_misconfigured(fresh_valkey):
    with fresh_valkey.client() as client:
        client.acl_setuser("poor", enabled=True, passwords=["+pw"], keys=["*"], commands=["+info"])
    with pytest.raises(Misconfigured, match="config"):
        await RedisStore.open(f"redis://poor:pw@127.0.0.1:{fresh_valkey.port}/0")


async def test_full_memory_refuses_new_jobs_and_lets_old_ones_finish(fresh_valkey):
    store = await RedisStore.open(fresh_valkey.url)
    await submit(store, "j1")
    await store.acquire_lease("control", "me", 30)
    with fresh_valkey.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    with pytest.raises(StorageFull, match="memory limit") as full:
        await store.submit("op", submission("j2"))
    assert any("maxmemory" in hint for hint in full.value.suggestions)
    with pytest.raises(StorageFull):
        await store.append_series("j1", [{"step": 1}])

    assert (await move(store, "j1", "CANCELLED")).ok
    assert await store.acquire_lease("control", "me", 30)
    assert await store.due() == ()
    (*_, last) = await store.read_outbox("", 9)
    await store.advance_outbox(last.cursor)
    health = await store.health()
    assert health.memory_used_ratio > 1
    assert health.outbox_lag == 0

    with fresh_valkey.client() as client:
        client.config_set("maxmemory", 0)
    assert (await store.submit("op", submission("j2"))).ok
    await store.close()


async def test_a_server_that_is_busy_is_unavailable_for_now(fresh_valkey):
    """One call took too long: nobody may end for that, whichever command it hears it by."""
    store = await RedisStore.open(fresh_valkey.url)
    with fresh_valkey.client() as client, fresh_valkey.client() as other:
        client.config_set("busy-reply-threshold", 10)

        def never_ends() -> None:
            with contextlib.suppress(ResponseError):  # it is killed
                client.eval("while true do end", 0)

        busy = threading.Thread(target=never_ends)
        busy.start()
        try:
            await asyncio.sleep(0.2)
            for ask in (store.counts, lambda: store.job("j1"), lambda: store.jobs_in({"QUEUED"})):
                with pytest.raises(Unavailable, match="BUSY"):
                    await ask()
        finally:
            other.script_kill()
            busy.join()
    assert (await store.submit("op", submission("j1"))).ok
    await store.close()


async def test_a_full_disk_is_told_and_loses_nothing(fresh_valkey, monkeypatch):
    """The server reports a disk that it cannot write to as MISCONF."""
    store = await RedisStore.open(fresh_valkey.url)

    async def refuse(*_: object) -> None:
        raise ResponseError("MISCONF Errors writing to the AOF file: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store._redis, "fcall", refuse)
        with pytest.raises(StorageFull, match="No space left") as full:
            await store.submit("op", submission("j1"))
    assert any("free space" in hint for hint in full.value.suggestions)
    assert (await store.submit("op", submission("j1"))).ok
    await store.close()


async def test_a_replica_is_refused(fresh_valkey, tmp_path_factory):
    replica = ValkeyProcess(tmp_path_factory.mktemp("replica")).start()
    try:
        with replica.client() as client:
            client.replicaof("127.0.0.1", fresh_valkey.port)
        with pytest.raises(Misconfigured, match="replica"):
            await RedisStore.open(replica.url)
    finally:
        replica.stop()


async def test_a_busy_server_is_unavailable_for_the_moment(fresh_valkey):
    store = await RedisStore.open(fresh_valkey.url)
    with fresh_valkey.client() as client:
        client.config_set("busy-reply-threshold", 10)
    spin = threading.Thread(target=spin_for_ever, args=(fresh_valkey,))
    spin.start()
    await asyncio.sleep(0.1)
    try:
        with pytest.raises(Unavailable, match="cannot take changes now: BUSY"):
            await store.job("j1")
    finally:
        with fresh_valkey.client() as client:
            client.script_kill()
        spin.join(10)
    assert await store.job("j1") is None
    await store.close()


def spin_for_ever(valkey: ValkeyProcess) -> None:
    with valkey.client() as client, contextlib.suppress(ResponseError):
        client.eval("while true do end", 0)


async def test_an_unknown_answer_is_an_error_of_ours(redis_store, valkey):
    with valkey.client() as client:
        client.set("{frenzy}:job:j1", "not a hash")
    with pytest.raises(FrenzyError, match="WRONGTYPE") as wrong:
        await redis_store.apply("op", Change(entity="job:j1", patch={"message": "x"}))
    assert not isinstance(wrong.value, Unavailable)


async def test_published_entries_of_yesterday_are_dropped(redis_store, valkey):
    day_ms = 86_400_000
    await submit(redis_store, "now")
    (fresh,) = await redis_store.read_outbox("", 9)
    old = [f"{fresh.time_ms - day_ms - age}-0" for age in (20_000, 10_000)]
    with valkey.client() as client:
        stored = client.xrange("{frenzy}:outbox")[0][1]
        client.delete("{frenzy}:outbox")
        for cursor in (*old, fresh.cursor):
            client.xadd("{frenzy}:outbox", stored, id=cursor)

    async def left() -> list[str]:
        return [entry.cursor for entry in await redis_store.read_outbox("0-0", 9)]

    await redis_store.advance_outbox(old[0])
    assert await left() == [old[1], fresh.cursor], "what is not published stays"
    await redis_store.advance_outbox(fresh.cursor)
    assert await left() == [fresh.cursor], "what is published stays for a day"


async def test_every_key_is_in_one_slot_and_only_counted_keys_grow(redis_store, valkey):
    await submit(redis_store, "j1")
    await move(redis_store, "j1", "QUEUED")
    with valkey.client() as client:
        keys = client.keys("*")
    assert keys
    assert all(key.startswith("{frenzy}:") for key in keys)


def test_the_configuration_holds_no_secret():
    conf = Path(__file__).parents[3] / "deploy" / "valkey" / "valkey.conf"
    settings = [
        line.split()[0] for line in conf.read_text().splitlines() if line and line[0] not in "# "
    ]
    assert "requirepass" not in settings
    assert {"appendonly", "appendfsync", "maxmemory-policy", "bind"} <= set(settings)


async def test_a_services_account_can_do_no_more_than_its_work(fresh_valkey):
    """The whole contract suite runs with these rights; this is what they leave out."""
    store = await RedisStore.open(fresh_valkey.service_url())
    await submit(store, "j1")
    await store.close()
    with redis.Redis.from_url(fresh_valkey.service_url(), decode_responses=True) as account:
        assert account.exists("{frenzy}:job:j1")
        for forbidden in (
            ["FLUSHALL"],
            ["FLUSHDB"],
            ["KEYS", "*"],
            ["EVAL", "return 1", "0"],
            ["FUNCTION", "LOAD", "REPLACE", "#!lua name=frenzy1\n"],
            ["FUNCTION", "DELETE", "frenzy1"],
            ["CONFIG", "SET", "appendfsync", "no"],
            ["ACL", "SETUSER", "service", "+@all"],
            ["SHUTDOWN"],
            ["REPLICAOF", "NO", "ONE"],
            ["SET", "other", "1"],
            ["GET", "other"],
            ["PUBLISH", "channel", "x"],
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                account.execute_command(*forbidden)


async def test_an_account_that_may_not_load_functions_says_who_can(fresh_valkey):
    url = fresh_valkey.service_url()
    with fresh_valkey.client() as client:
        client.function_flush()
    with pytest.raises(Misconfigured, match="may not load them") as error:
        await RedisStore.open(url)
    assert any("frenzy init" in hint for hint in error.value.suggestions)
