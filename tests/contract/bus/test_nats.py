"""What only the NATS adapter can show: configuration, refusals, handlers."""

import asyncio
import contextlib
import dataclasses
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import nats.js.api
import pytest
from tests.support.nats import NatsServer, free_port
from tests.support.nats_bus import EVENTS, SUBJECT, append_to, bus, ignore, raw, until

from frenzy_shared.bus import nats_streams
from frenzy_shared.bus.delivery import MAX_DELIVERIES
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.port import Message, Poison
from frenzy_shared.errors import (
    FrenzyError,
    Misconfigured,
    PayloadTooLarge,
    StorageFull,
    Unavailable,
)
from frenzy_shared.messages import subjects
from frenzy_shared.messages.subjects import STREAMS

__all__ = ["bus", "raw"]


# -- configuration ----------------------------------------------------------------------------


def test_the_shipped_configuration_is_durable(tmp_path: Path) -> None:
    """Asked of the running server, not of the file."""
    monitoring = free_port()
    server = NatsServer(tmp_path, options=("-a", "127.0.0.1", "-m", str(monitoring)))
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitoring}/varz", timeout=5) as reply:
            varz = json.load(reply)
    finally:
        server.stop()

    assert varz["jetstream"]["config"]["sync_always"] is True
    assert varz["jetstream"]["config"]["max_storage"] == 8 * 1024**3
    assert varz["jetstream"]["config"]["store_dir"].startswith(str(tmp_path / "jetstream"))
    assert varz["host"] == "127.0.0.1"
    assert varz["auth_required"] is True
    assert varz["max_payload"] == 1024**2
    assert sum(config.max_bytes for config in STREAMS) < varz["jetstream"]["config"]["max_storage"]


async def test_streams_are_files_and_only_logs_may_lag(bus: NatsBus, raw: nats.NATS) -> None:
    for config in STREAMS:
        reply = await raw.request(f"$JS.API.STREAM.INFO.{config.name}", b"", timeout=5)
        found = json.loads(reply.data)["config"]
        assert found["storage"] == "file"
        assert found["max_bytes"] == config.max_bytes
        assert found.get("persist_mode", "default") == (
            "async" if config.name == subjects.LOGS_STREAM else "default"
        )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"max_bytes": 12345}, "max_bytes is 12345, expected 2147483648"),
        ({"max_age": 3600.0}, "max_age is 3600000000000, expected 2592000000000000"),
        ({"duplicate_window": 30.0}, "duplicate_window is 30000000000, expected 600000000000"),
        ({"subjects": ["frenzy.v1.evt.a.>"]}, "subjects is ['frenzy.v1.evt.a.>'], expected"),
        ({"discard": nats.js.api.DiscardPolicy.NEW}, "discard is 'new', expected 'old'"),
        ({"max_msgs": 5}, "max_msgs is 5, expected -1"),
        ({"max_msgs_per_subject": 5}, "max_msgs_per_subject is 5, expected -1"),
        ({"max_msg_size": 5}, "max_msg_size is 5, expected -1"),
        ({"deny_purge": True}, "deny_purge is True, expected False"),
        ({"compression": nats.js.api.StoreCompression.S2}, "compression is 's2', expected 'none'"),
        ({"no_ack": True}, "no_ack is True, expected None"),
        ({"republish": nats.js.api.RePublish(src=">", dest="x.>")}, "republish is {"),
        ({"storage": nats.js.api.StorageType.MEMORY}, "storage is 'memory', expected 'file'"),
        (
            {"retention": nats.js.api.RetentionPolicy.INTEREST},
            "retention is 'interest', expected 'limits'",
        ),
        ({"persist_mode": nats.js.api.PersistMode.ASYNC}, "persist_mode is 'async', expected 'de"),
    ],
)
async def test_drift_is_refused_naming_field_and_values(
    nats_url: str, raw: nats.NATS, change: dict[str, Any], complaint: str
) -> None:
    bus = await NatsBus.connect(nats_url, name="test")
    await bus.ensure_streams()
    await bus.verify_streams()
    api = raw.jetstream()
    config = (await api.stream_info(EVENTS)).config
    await api.delete_stream(EVENTS)
    changed = config.evolve(**change)
    if "storage" in change:
        changed = changed.evolve(max_bytes=1024, compression=None)
    await api.add_stream(changed)

    with pytest.raises(Misconfigured) as caught:
        await bus.verify_streams()
    assert EVENTS in caught.value.message
    assert complaint in caught.value.message
    assert caught.value.suggestions
    await bus.close()


def test_every_field_of_a_stream_is_compared() -> None:
    """A new field of StreamConfig must reach the server's configuration."""
    for field in dataclasses.fields(STREAMS[0]):
        values = {"discard": "new", "persist_async": True, "name": "X", "subject": "x.>"}
        changed = dataclasses.replace(STREAMS[0], **{field.name: values.get(field.name, 77)})
        assert nats_streams.wanted(changed, 1) != nats_streams.wanted(STREAMS[0], 1), field.name


async def test_a_durable_that_differs_is_refused(bus: NatsBus, raw: nats.NATS) -> None:
    await raw.jetstream().add_consumer(
        EVENTS, durable_name="d", filter_subject=subjects.ALL_EVENTS, ack_wait=77, max_ack_pending=1
    )
    with pytest.raises(Misconfigured, match="durable d of FRENZY_EVENTS: ack_wait is 77000000000"):
        await bus.consume(EVENTS, "d", ignore, filter_subject=subjects.ALL_EVENTS)


async def test_a_full_stream_says_so(bus: NatsBus, raw: nats.NATS) -> None:
    api = raw.jetstream()
    await api.update_stream(
        (await api.stream_info(subjects.EVIDENCE_STREAM)).config.evolve(max_bytes=2000)
    )
    subject = subjects.evidence("n1", "clean")
    await bus.publish(subject, b"x" * 1000, message_id="1")
    with pytest.raises(StorageFull, match="maximum bytes exceeded") as caught:
        await bus.publish(subject, b"x" * 1000, message_id="2")
    assert caught.value.suggestions


# -- connecting -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.12.7", "2.12.99", "2.14.0", "2.15.1", "3.0.0", "v2.14.2"])
def test_servers_that_are_new_enough(version: str) -> None:
    nats_streams.check_server_version(version)


@pytest.mark.parametrize("version", ["2.9.10", "2.12.6", "2.13.0", "2.13.9", "1.99.99", "", "new"])
def test_servers_that_are_not(version: str) -> None:
    with pytest.raises(Misconfigured, match=r"2\.12\.7"):
        nats_streams.check_server_version(version)


async def test_an_old_server_is_refused() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.9.10", "max_payload": 1024, "headers": True}
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Misconfigured, match=r"nats-server 2\.9\.10 is not supported") as caught:
        await NatsBus.connect(f"nats://127.0.0.1:{port}", name="test")
    assert ".[local]" in " ".join(caught.value.suggestions)
    server.close()
    await server.wait_closed()


async def test_no_server_is_unavailable_and_shows_no_secret() -> None:
    with pytest.raises(Unavailable) as caught:
        await NatsBus.connect(f"nats://s3cret@127.0.0.1:{free_port()}", name="test", timeout_s=0.3)
    assert "127.0.0.1" in caught.value.message
    assert "s3cret" not in caught.value.message


async def test_a_wrong_token_is_refused_at_once(nats_server: NatsServer) -> None:
    with pytest.raises(Misconfigured, match="refuses"):
        await NatsBus.connect(f"nats://wrong@127.0.0.1:{nats_server.port}", name="test")


async def test_a_malformed_url_is_refused() -> None:
    with pytest.raises(Misconfigured, match="FRENZY_NATS_URL"):
        await NatsBus.connect("nats://127.0.0.1:70000000", name="test", timeout_s=2)


PERMISSIONS = """
listen: "127.0.0.1:$PORT"
jetstream { store_dir: "$STORE_DIR" }
authorization {
  users = [{user: node, password: "$TOKEN", permissions: {
    publish: ["frenzy.v1.evd.n1.>", "$$JS.API.>"], subscribe: ["_INBOX_node.>"]}}]
}
"""


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path, config=PERMISSIONS)
    server.start()
    yield server
    server.stop()


async def test_a_denied_subject_is_fatal_not_silent(guarded_server: NatsServer) -> None:
    fatal: list[FrenzyError] = []
    url = f"nats://node:{guarded_server.token}@127.0.0.1:{guarded_server.port}"
    bus = await NatsBus.connect(url, name="node", on_fatal=fatal.append)
    await bus.ensure_streams()
    await bus.publish(subjects.evidence("n1", "clean"), b"", message_id="1")
    assert fatal == []

    await bus.subscribe(subjects.desired("n1"), ignore)
    await until(lambda: len(fatal) == 1)
    with pytest.raises(Unavailable):
        await bus.publish(subjects.evidence("n2", "clean"), b"", message_id="2")
    await until(lambda: len(fatal) == 2)
    assert "frenzy.v1.node.n1.desired" in fatal[0].message
    assert "frenzy.v1.evd.n2.clean" in fatal[1].message
    assert all(isinstance(error, Misconfigured) for error in fatal)
    await bus.close()


async def test_revoked_credentials_are_fatal(fresh_nats_server: NatsServer) -> None:
    fatal: list[FrenzyError] = []
    bus = await NatsBus.connect(fresh_nats_server.url, name="test", on_fatal=fatal.append)
    fresh_nats_server.kill()
    config = fresh_nats_server.folder / "nats.conf"
    config.write_text(config.read_text().replace(fresh_nats_server.token, "another"))
    fresh_nats_server.start()

    await until(lambda: bool(fatal))
    assert isinstance(fatal[0], Misconfigured)
    await bus.close()


# -- handlers ---------------------------------------------------------------------------------


async def test_a_slow_handler_keeps_its_message(bus: NatsBus) -> None:
    """Three times ack_wait, and the message comes once."""
    deliveries: list[int] = []

    async def slow(message: Message) -> None:
        deliveries.append(message.deliveries)
        await asyncio.sleep(1.8)

    await bus.consume(EVENTS, "d", slow, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"", message_id="a")
    await until(lambda: bool(deliveries))
    await asyncio.sleep(2.2)
    assert deliveries == [1]


async def test_a_dead_replicas_message_comes_again(bus: NatsBus, nats_url: str) -> None:
    async def hang(_: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    entered = asyncio.Event()
    dying = await NatsBus.connect(nats_url, name="dying", ack_wait_s=0.6, on_fatal=lambda _: None)
    consumer = await dying.consume(EVENTS, "d", hang, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"", message_id="a")
    await entered.wait()
    await dying._connection.client.close()  # as kill -9 looks from the server

    received: list[Message] = []
    await bus.consume(EVENTS, "d", append_to(received), filter_subject=subjects.ALL_EVENTS)
    await until(lambda: bool(received))
    assert received[0].deliveries == 2
    consumer._task.cancel()
    await asyncio.wait({consumer._task})


async def test_a_message_that_kills_its_handlers_is_dead_lettered(
    bus: NatsBus, raw: nats.NATS
) -> None:
    """Nobody lived to say that it failed; the count of deliveries says it."""
    received: list[Message] = []
    consumer = await bus.consume(
        EVENTS, "d", append_to(received), filter_subject=subjects.ALL_EVENTS
    )
    await consumer.stop()
    await bus.publish(SUBJECT, b"deadly", message_id="a")
    pull = await raw.jetstream().pull_subscribe_bind("d", EVENTS)
    for _ in range(MAX_DELIVERIES):
        [message] = await pull.fetch(1, timeout=5)
        await message.nak()
    await raw.flush()

    await bus.consume(EVENTS, "d", append_to(received), filter_subject=subjects.ALL_EVENTS)
    async with asyncio.timeout(10):
        while await bus.last_sequence(subjects.DLQ_STREAM) == 0:
            await asyncio.sleep(0.05)
    assert received == []


async def test_a_dead_letter_that_cannot_be_stored_is_tried_again(
    bus: NatsBus, raw: nats.NATS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frenzy_shared.bus.nats_consumer.redelivery_delay_s", lambda _: 0.05)
    seen: list[Message] = []

    async def poisoned(message: Message) -> None:
        seen.append(message)
        raise Poison("no")

    await raw.jetstream().delete_stream(subjects.DLQ_STREAM)
    await bus.consume(EVENTS, "d", poisoned, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"", message_id="a")
    await until(lambda: len(seen) >= 2)
    await bus.ensure_streams()
    async with asyncio.timeout(10):
        while await bus.last_sequence(subjects.DLQ_STREAM) == 0:
            await asyncio.sleep(0.05)


async def test_a_deleted_durable_comes_back(bus: NatsBus, raw: nats.NATS) -> None:
    received: list[Message] = []
    await bus.consume(EVENTS, "d", append_to(received), filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"1", message_id="a")
    await until(lambda: len(received) == 1)
    await raw.jetstream().delete_consumer(EVENTS, "d")
    await bus.publish(SUBJECT, b"2", message_id="b")

    await until(lambda: b"2" in [message.payload for message in received])


async def test_readers_leave_nothing_on_the_server(bus: NatsBus, raw: nats.NATS) -> None:
    await bus.publish(SUBJECT, b"1", message_id="a")
    for _ in range(3):
        async with contextlib.aclosing(bus.read(EVENTS, ">", after_sequence=0)) as reader:
            assert await anext(reader)
    api = raw.jetstream()
    async with asyncio.timeout(5):
        while await api.consumers_info(EVENTS):
            await asyncio.sleep(0.02)


async def test_headers_count_towards_the_limit(bus: NatsBus) -> None:
    """The server answers a message that is too large by closing the connection."""
    for call in (
        bus.publish(SUBJECT, b"x" * (1024**2 - 20), message_id="a"),
        bus.emit(SUBJECT, b"x" * (1024**2 - 20), headers={"header": "x" * 20}),
        bus.request(SUBJECT, b"x" * (1024**2 - 20), timeout_s=1, headers={"header": "x" * 20}),
    ):
        with pytest.raises(PayloadTooLarge):
            await call
    largest = 1024**2 - len("NATS/1.0\r\nNats-Msg-Id: b\r\n\r\n")
    assert (await bus.publish(SUBJECT, b"x" * largest, message_id="b")).sequence == 1
    with pytest.raises(PayloadTooLarge):
        await bus.publish(SUBJECT, b"x" * (largest + 1), message_id="c")
    assert bus.connected


async def test_the_largest_message_is_dead_lettered_by_reference(bus: NatsBus) -> None:
    async def poisoned(message: Message) -> None:
        raise Poison("no")

    largest = 1024**2 - len("NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n")
    await bus.publish(SUBJECT, b"x" * largest, message_id="a")
    await bus.consume(EVENTS, "d", poisoned, filter_subject=subjects.ALL_EVENTS)
    async with (
        contextlib.aclosing(bus.read(subjects.DLQ_STREAM, ">", after_sequence=0)) as reader,
        asyncio.timeout(10),
    ):
        letter = await anext(reader)
        while letter is None:
            letter = await anext(reader)
    assert (letter.payload, letter.headers["Frenzy-Sequence"]) == (b"", "1")


async def test_a_consumer_that_dies_takes_the_service_with_it(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal: list[FrenzyError] = []
    bus = await NatsBus.connect(nats_url, name="test", on_fatal=fatal.append)
    await bus.ensure_streams()

    def broken(_: object) -> Message:
        raise RuntimeError("a bug of the bus")

    monkeypatch.setattr("frenzy_shared.bus.nats_consumer.to_message", broken)
    await bus.consume(EVENTS, "d", ignore, filter_subject=subjects.ALL_EVENTS)
    await bus.publish(SUBJECT, b"", message_id="a")
    await until(lambda: bool(fatal))
    assert "a bug of the bus" in fatal[0].message
    await bus.close()


async def test_closing_over_a_tls_connection_that_has_just_broken_is_quiet(
    bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's TLS transport has no protocol any more then, and says so in its own way."""

    async def broken() -> None:
        raise AttributeError("'NoneType' object has no attribute '_write_appdata'")

    monkeypatch.setattr(bus._connection.client, "close", broken)
    await bus.close()
