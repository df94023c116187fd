"""Power cuts: servers are started again on a copy of what had reached the disk."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
from tests.support.agent import order
from tests.support.deployment import Deployment, server_pid
from tests.support.disk import Disk, needs_loop_mounts
from tests.support.history import check
from tests.support.nats import CONFIG, NatsServer
from tests.support.recording import history_of
from tests.support.state import submission
from tests.support.valkey import ValkeyProcess

from frenzy_orchestrator.adapters.journal import NodeJournal
from frenzy_scheduler.adapters.archive import FolderArchive
from frenzy_shared.blobs.directory import DirectoryBlobStore
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import FrenzyError
from frenzy_shared.files import write_private
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import AttemptPhase
from frenzy_shared.state.redis import RedisStore

pytestmark = [pytest.mark.timeout(120), needs_loop_mounts]

WRITERS = 8
ENOUGH = 150
SUBJECT = subjects.job_event("p", "submitted", "j1")


@pytest.fixture
def disk(tmp_path):
    with Disk(tmp_path / "disk.img", tmp_path / "server" / "jetstream") as mounted:
        yield mounted


async def test_a_store_has_every_answered_job(disk):
    server, answered = await submit_until_cut(disk)
    async with opened(server) as store:
        announced = {entry.entity for entry in await store.read_outbox("", 100_000)}
        for number in answered:
            assert await store.job(f"job-{number}") is not None
            assert f"job:job-{number}" in announced
    server.stop()


async def test_a_bus_has_every_answered_message(disk):
    server, answered = await publish_until_cut(disk, CONFIG.read_text())
    assert answered <= await published(server)
    server.stop()


async def test_other_settings_lose_what_was_answered(disk):
    """So this way of cutting the power shows what it should."""
    server, answered = await submit_until_cut(disk, fsync="no")
    async with opened(server) as store:
        found = {number for number in answered if await store.job(f"job-{number}") is not None}
    server.stop()
    assert answered - found

    lazy = CONFIG.read_text().replace("sync_interval: always", 'sync_interval: "2m"')
    server, answered = await publish_until_cut(disk, lazy)
    assert answered - await published(server)
    server.stop()


async def test_files_last_that_somebody_was_told_of(disk):
    """Identities and keys, a stored bundle, an attempt's journal, an archived job."""

    async def chunks():
        yield b"bundle"

    key, journal = disk.folder / "key", disk.folder / "node"
    write_private(key, "seed")
    disk.restore(disk.copy())
    assert key.read_text() == "seed"

    digest = await DirectoryBlobStore(disk.folder / "blobs").put(chunks())
    disk.restore(disk.copy())
    assert await DirectoryBlobStore(disk.folder / "blobs").exists(digest)

    attempt = NodeJournal(journal).create(order(), AttemptPhase.PREPARED)
    disk.restore(disk.copy())
    attempt.bury(StopReason.CANCELLED_BY_USER, 1.0)
    disk.restore(disk.copy())
    assert NodeJournal(journal).attempts[attempt.key].tombstoned

    await FolderArchive(disk.folder / "archive").append({"id": "j1"}, finished_ms=0)
    disk.restore(disk.copy())
    assert (disk.folder / "archive" / "jobs-1970-01.jsonl").read_text() == '{"id":"j1"}\n'


@pytest.mark.long
def test_a_head_whose_power_was_cut_goes_on_with_every_job(tmp_path):
    """Both servers at once, with a whole system at work."""
    system = Deployment(tmp_path / "system")
    servers = (system.valkey, system.nats)
    folders = (system.valkey.folder, system.nats.folder / "jetstream")
    with contextlib.ExitStack() as stack:
        disks = [
            stack.enter_context(Disk(tmp_path / f"{folder.name}.img", folder)) for folder in folders
        ]
        stack.enter_context(system)
        lasting = [system.submit(f"lasting-{n}", ranks=2, seconds=5.0) for n in range(2)]
        for round_ in range(2):
            jobs = [system.submit(f"cut-{round_}-{n}") for n in range(6)]
            for server in servers:
                os.kill(server_pid(server), signal.SIGSTOP)
            copies = [disk.copy() for disk in disks]
            for server in servers:
                server.kill()
            for disk, copy in zip(disks, copies, strict=True):
                disk.restore(copy)
            for server in servers:
                server.start()
            ends = [system.finished(job) for job in jobs]
            assert {end["state"] for end in ends} == {"SUCCEEDED"}
        ends = [system.finished(job) for job in lasting]
        assert {(end["state"], end["attempt"]) for end in ends} == {("SUCCEEDED", 1)}
        assert check(history_of(system)) == []
        assert system.unexpected_exits() == {}


# -- writing and reading --------------------------------------------------------------------------


async def submit_until_cut(disk, *, fsync: str = "always"):
    server = ValkeyProcess(disk.folder).start()
    async with opened(server) as store:
        with server.client() as client:
            client.config_set("appendfsync", fsync)

        async def submit(number: int) -> None:
            assert (await store.submit(f"submit:{number}", submission(f"job-{number}"))).ok

        answered = await write_until_cut(submit, server, disk)
    return server.start(), answered


async def publish_until_cut(disk, config: str):
    server = NatsServer(disk.folder.parent, config=config)
    server.start()
    bus = await NatsBus.connect(server.url, name="writer")
    await bus.ensure_streams()

    async def publish(number: int) -> None:
        await bus.publish(SUBJECT, str(number).encode(), message_id=str(number))

    answered = await write_until_cut(publish, server, disk)
    await bus.close()
    server.start()
    return server, answered


async def write_until_cut(write: Callable[[int], Awaitable[None]], server, disk) -> set[int]:
    """Write from several sides, cut the power amid it, and return what had been answered."""
    answered: set[int] = set()
    numbers = itertools.count()

    async def writer() -> None:
        with contextlib.suppress(FrenzyError):
            while True:
                number = next(numbers)
                await write(number)
                answered.add(number)

    writers = [asyncio.ensure_future(writer()) for _ in range(WRITERS)]
    while len(answered) < ENOUGH:
        await asyncio.sleep(0.01)
    os.kill(server_pid(server), signal.SIGSTOP)
    await asyncio.sleep(0.1)  # what it answered before arrives
    before = set(answered)
    copy = disk.copy()
    server.kill()
    while left := [one for one in writers if not one.done()]:
        for one in left:
            one.cancel()
        await asyncio.wait(left, timeout=0.1)
    disk.restore(copy)
    return before


@contextlib.asynccontextmanager
async def opened(server):
    store = await RedisStore.open(server.url)
    yield store
    await store.close()


async def published(server) -> set[int]:
    """Return what the stream holds; nothing when the stream itself is gone."""
    bus = await NatsBus.connect(server.url, name="reader")
    found: set[int] = set()
    with contextlib.suppress(FrenzyError):
        last = await bus.last_sequence(subjects.EVENTS_STREAM)
        if last:
            async with contextlib.aclosing(
                bus.read(subjects.EVENTS_STREAM, ">", after_sequence=0)
            ) as messages:
                async for message in messages:
                    if message is not None:
                        found.add(int(message.payload))
                    if message is not None and message.sequence >= last:
                        break
    await bus.close()
    return found
