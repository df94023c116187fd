"""Outages of the NATS server: what was acknowledged is never lost, what was handled not doubled."""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import nats
import nats.js.api
import pytest
from tests.support.nats import NatsServer
from tests.support.nats_bus import EVENTS, SUBJECT, append_to, bus, ignore, raw, until

from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_pull import Puller, PullLost
from frenzy_shared.bus.port import Message
from frenzy_shared.errors import (
    Unavailable,
)
from frenzy_shared.messages import subjects

__all__ = ["bus", "raw"]


async def test_kill_9_loses_and_doubles_nothing(fresh_nats_server: NatsServer) -> None:
    """Publish, consume and read through two kills of the server."""
    total = 120
    bus = await NatsBus.connect(fresh_nats_server.url, name="test", ack_wait_s=1)
    await bus.ensure_streams()
    consumed: list[Message] = []
    read: list[Message] = []
    await bus.consume(EVENTS, "d", append_to(consumed), filter_subject=subjects.ALL_EVENTS)

    async def publish() -> None:
        for number in range(total):
            while True:
                try:
                    await bus.publish(SUBJECT, b"%d" % number, message_id=f"m{number}")
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)

    async def follow() -> None:
        async with contextlib.aclosing(
            bus.read(EVENTS, subjects.ALL_EVENTS, after_sequence=0)
        ) as reader:
            while len(read) < total:
                read.extend(filter(None, [await anext(reader)]))

    publishing = asyncio.ensure_future(publish())
    following = asyncio.ensure_future(follow())
    for goal in (total // 4, total // 2):
        await until(lambda goal=goal: len(consumed) >= goal, 30)
        await asyncio.to_thread(fresh_nats_server.kill)
        await until(lambda: not bus.connected)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(fresh_nats_server.start)
    await asyncio.wait_for(asyncio.gather(publishing, following), 60)
    await until(lambda: len({message.sequence for message in consumed}) == total, 30)

    assert await bus.last_sequence(EVENTS) == total
    assert [message.payload for message in read] == [b"%d" % number for number in range(total)]
    assert [message.sequence for message in read] == list(range(1, total + 1))
    await bus.verify_streams()
    await bus.close()


async def test_core_subscriptions_survive_a_restart(fresh_nats_server: NatsServer) -> None:
    async def answer(message: Message) -> bytes:
        return message.payload

    bus = await NatsBus.connect(fresh_nats_server.url, name="test")
    await bus.serve(subjects.HEARTBEATS, answer)
    fresh_nats_server.kill()
    await until(lambda: not bus.connected)
    with pytest.raises(Unavailable, match="unreachable"):
        await bus.emit(subjects.desired("n1"), b"")
    with pytest.raises(Unavailable, match="unreachable"):
        await bus.request(subjects.heartbeat("n1"), b"x", timeout_s=0.1)
    fresh_nats_server.start()

    assert await bus.request(subjects.heartbeat("n1"), b"x", timeout_s=5) == b"x"
    await bus.close()


async def test_a_publish_into_a_frozen_server_is_unknown_and_safe_to_repeat(
    fresh_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frenzy_shared.bus.nats._PUBLISH_TIMEOUT_S", 0.5)
    bus = await NatsBus.connect(fresh_nats_server.url, name="test")
    await bus.ensure_streams()
    os.kill(fresh_nats_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="unknown outcome"):
            await bus.publish(SUBJECT, b"1", message_id="a")
    finally:
        os.kill(fresh_nats_server.pid, signal.SIGCONT)

    again = await bus.publish(SUBJECT, b"1", message_id="a")
    assert (again.sequence, again.duplicate) == (1, True)
    await bus.close()


async def test_closing_while_the_server_is_away_ends(fresh_nats_server: NatsServer) -> None:
    bus = await NatsBus.connect(fresh_nats_server.url, name="test")
    await bus.ensure_streams()
    await bus.consume(EVENTS, "d", ignore, filter_subject=subjects.ALL_EVENTS)
    await bus.subscribe(subjects.HEARTBEATS, ignore)
    fresh_nats_server.kill()
    await until(lambda: not bus.connected)
    async with asyncio.timeout(5):
        await bus.close()


async def test_a_message_lost_on_the_way_is_noticed(bus: NatsBus, raw: nats.NATS) -> None:
    """The server says how much of a pull it did not send; the rest must have arrived."""
    await raw.jetstream().add_consumer(EVENTS, name="x", ack_policy="none")
    await bus.publish(SUBJECT, b"1", message_id="a")
    async with Puller(bus._connection, EVENTS, "x") as puller:
        receive, dropped = puller._receive, []

        async def drop_first(message: Any) -> None:
            if not dropped:
                dropped.append(message)
            else:
                await receive(message)

        puller._subscription._cb = drop_first
        with pytest.raises(PullLost, match="lost on the way"):
            async for _ in puller.pull(10, 0.3):
                pass
    assert dropped[0].data == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_full_disk_loses_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server recovers only when restarted; the publisher is told, never left waiting."""
    monkeypatch.setattr("frenzy_shared.bus.nats._PUBLISH_TIMEOUT_S", 0.5)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk], check=True)
    server = NatsServer(disk)
    server.start()
    bus = await NatsBus.connect(server.url, name="test")
    acknowledged = 0
    try:
        await bus.ensure_streams()
        with contextlib.suppress(Unavailable):
            while True:
                await bus.publish(SUBJECT, os.urandom(200_000), message_id=f"{acknowledged}")
                acknowledged += 1
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        server.kill()
        await until(lambda: not bus.connected)
        server.start()
        await until(lambda: bus.connected)
        again = await bus.publish(SUBJECT, b"", message_id="0")
        assert (again.duplicate, again.sequence) == (True, 1)
        assert await bus.last_sequence(EVENTS) >= acknowledged > 20
        assert not (await bus.publish(SUBJECT, b"", message_id="new")).duplicate
    finally:
        await bus.close()
        server.stop()
        subprocess.run(["umount", disk], check=True)
