"""Least privilege on the bus, on a real server: what each identity may do, and what it may not."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import nats
import pytest
from tests.support.nats_bus import until
from tests.support.nats_site import Site

from frenzy_shared.bus.keys import load_or_make
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.bus.port import Message
from frenzy_shared.errors import FrenzyError, Misconfigured, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.subjects import (
    DECISIONS_STREAM,
    EVENTS_STREAM,
    EVIDENCE_DURABLE,
    EVIDENCE_STREAM,
    MARP_DURABLE,
    WAKE_DURABLE,
)

JOB = "01job"
EVENT = subjects.job_event("alpha", "submitted", JOB)
OTHERS_EVENT = subjects.job_event("beta", "submitted", JOB)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("bus"))
    site.server.start()
    asyncio.run(_streams(site))
    yield site
    site.server.stop()


async def _streams(site: Site) -> None:
    bus = await NatsBus.connect(site.access(BusRole.ADMIN), name="admin")
    await bus.ensure_streams()
    for number, subject in enumerate((EVENT, OTHERS_EVENT)):
        await bus.publish(subject, subject.encode(), message_id=str(number))
    await bus.close()


# What each identity must not do: a subject to publish, or one to subscribe.
FORBIDDEN_PUBLISH = [
    (BusRole.NODE, "n1", subjects.evidence("n2", "clean")),
    (BusRole.NODE, "n1", subjects.heartbeat("n2")),
    (BusRole.NODE, "n1", subjects.desired("n1")),
    (BusRole.NODE, "n1", subjects.secrets("n2")),
    (BusRole.NODE, "n1", EVENT),
    (BusRole.NODE, "n1", subjects.MARP_PLAN),
    (BusRole.NODE, "n1", subjects.dead_letter(EVENTS_STREAM, "marp")),
    (BusRole.NODE, "n1", f"$JS.API.STREAM.DELETE.{EVENTS_STREAM}"),
    (BusRole.NODE, "n1", f"$JS.API.STREAM.PURGE.{EVIDENCE_STREAM}"),
    (BusRole.NODE, "n1", f"$JS.API.STREAM.MSG.GET.{EVENTS_STREAM}"),
    (BusRole.NODE, "n1", f"$JS.API.CONSUMER.CREATE.{EVENTS_STREAM}.x.frenzy.v1.evt.>"),
    (BusRole.NODE, "n1", f"$JS.API.CONSUMER.MSG.NEXT.{EVIDENCE_STREAM}.{EVIDENCE_DURABLE}"),
    (BusRole.NODE, "n1", f"$JS.ACK.{EVIDENCE_STREAM}.{EVIDENCE_DURABLE}.1.1.1.1.1"),
    (BusRole.MARP, "", f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS_STREAM}.{WAKE_DURABLE}"),
    (BusRole.MARP, "", EVENT),
    (BusRole.MARP, "", subjects.evidence("n1", "clean")),
    (BusRole.MARP, "", subjects.desired("n1")),
    (BusRole.MARP, "", subjects.secrets("n1")),
    (BusRole.MARP, "", f"$JS.API.CONSUMER.MSG.NEXT.{EVIDENCE_STREAM}.{EVIDENCE_DURABLE}"),
    (BusRole.MARP, "", f"$JS.API.STREAM.DELETE.{EVENTS_STREAM}"),
    (BusRole.SCHEDULER, "", subjects.evidence("n1", "clean")),
    (BusRole.SCHEDULER, "", subjects.secrets("n1")),
    (BusRole.SCHEDULER, "", f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS_STREAM}.{MARP_DURABLE}"),
    (BusRole.SCHEDULER, "", f"$JS.API.STREAM.UPDATE.{EVENTS_STREAM}"),
    (BusRole.GATEWAY, "", subjects.desired("n1")),
    (BusRole.GATEWAY, "", subjects.heartbeat("n1")),
    (BusRole.GATEWAY, "", f"$JS.API.STREAM.DELETE.{EVENTS_STREAM}"),
    (BusRole.GATEWAY, "", f"$JS.API.STREAM.PURGE.{EVENTS_STREAM}"),
    (BusRole.GATEWAY, "", f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS_STREAM}.{MARP_DURABLE}"),
    (BusRole.GATEWAY, "", f"$JS.API.CONSUMER.DELETE.{EVENTS_STREAM}.{MARP_DURABLE}"),
    (BusRole.GATEWAY, "", f"$JS.API.CONSUMER.CREATE.{EVENTS_STREAM}.{MARP_DURABLE}"),
    (BusRole.GATEWAY, "", f"$JS.API.CONSUMER.CREATE.{EVENTS_STREAM}.{WAKE_DURABLE}.a.b"),
    (BusRole.GATEWAY, "", f"$JS.API.STREAM.MSG.GET.{DECISIONS_STREAM}"),
    (BusRole.GATEWAY, "", subjects.decision("token", "t1")),
    (BusRole.MARP, "", subjects.decision("token", "t1")),
    (BusRole.NODE, "n1", subjects.decision("token", "t1")),
    (BusRole.SCHEDULER, "", f"$JS.API.STREAM.PURGE.{DECISIONS_STREAM}"),
    (BusRole.INTEGRATION, "portal", subjects.decision("token", "t1")),
    (BusRole.INTEGRATION, "portal", f"$JS.API.STREAM.MSG.GET.{DECISIONS_STREAM}"),
    (BusRole.INTEGRATION, "portal", f"$JS.API.CONSUMER.CREATE.{DECISIONS_STREAM}.x"),
    (BusRole.INTEGRATION, "watch", f"$JS.API.STREAM.MSG.GET.{DECISIONS_STREAM}"),
    (BusRole.INTEGRATION, "portal", EVENT),
    (BusRole.INTEGRATION, "portal", subjects.evidence("n1", "clean")),
    (BusRole.INTEGRATION, "portal", subjects.MARP_PLAN),
    (BusRole.INTEGRATION, "portal", subjects.secrets("n1")),
    (BusRole.INTEGRATION, "portal", f"$JS.API.STREAM.INFO.{EVENTS_STREAM}"),
    (BusRole.INTEGRATION, "portal", f"$JS.API.STREAM.MSG.GET.{EVENTS_STREAM}"),
    (BusRole.INTEGRATION, "portal", f"$JS.API.CONSUMER.CREATE.{EVENTS_STREAM}.x.frenzy.v1.evt.>"),
    (BusRole.INTEGRATION, "portal", f"$JS.API.CONSUMER.DURABLE.CREATE.{EVENTS_STREAM}.x"),
    (BusRole.INTEGRATION, "portal", f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS_STREAM}.{MARP_DURABLE}"),
    (BusRole.INTEGRATION, "portal", f"$JS.API.CONSUMER.DELETE.{EVENTS_STREAM}.{MARP_DURABLE}"),
    (BusRole.INTEGRATION, "portal", f"$JS.ACK.{EVENTS_STREAM}.{MARP_DURABLE}.1.1.1.1.1"),
]
FORBIDDEN_SUBSCRIBE = [
    (BusRole.NODE, "n1", subjects.ALL_EVENTS),
    (BusRole.NODE, "n1", subjects.desired("n2")),
    (BusRole.NODE, "n1", subjects.SECRETS),
    (BusRole.NODE, "n1", "_INBOX_node-n2.>"),
    (BusRole.NODE, "n1", "_INBOX_scheduler.>"),
    (BusRole.NODE, "n1", "_INBOX.>"),
    (BusRole.NODE, "n1", ">"),
    (BusRole.MARP, "", subjects.HEARTBEATS),
    (BusRole.MARP, "", subjects.SECRETS),
    (BusRole.MARP, "", subjects.ALL_EVENTS),
    (BusRole.SCHEDULER, "", "_INBOX_gateway.>"),
    (BusRole.SCHEDULER, "", subjects.MARP_PLAN),
    (BusRole.SCHEDULER, "", subjects.SECRETS),
    (BusRole.GATEWAY, "", subjects.HEARTBEATS),
    (BusRole.GATEWAY, "", subjects.MARP_PLAN),
    (BusRole.INTEGRATION, "portal", subjects.project_events("beta")),
    (BusRole.INTEGRATION, "portal", subjects.ALL_EVENTS),
    (BusRole.INTEGRATION, "portal", "frenzy.v1.log.>"),
    (BusRole.INTEGRATION, "portal", subjects.SECRETS),
    (BusRole.INTEGRATION, "portal", "_INBOX_gateway.>"),
    (BusRole.INTEGRATION, "portal", "$JS.API.>"),
    (BusRole.INTEGRATION, "portal", subjects.ALL_DECISIONS),
    (BusRole.INTEGRATION, "watch", subjects.ALL_DECISIONS),
    (BusRole.GATEWAY, "", subjects.ALL_DECISIONS),
]


@pytest.mark.parametrize(("role", "name", "subject"), FORBIDDEN_PUBLISH)
async def test_what_nobody_may_publish(site: Site, role: BusRole, name: str, subject: str) -> None:
    async with site.client(role, name) as (client, told):
        await client.publish(subject, b"{}")
        await client.flush()
        await until(lambda: bool(told))
    assert "permissions violation for publish" in told[0]
    assert subject.lower() in told[0]


@pytest.mark.parametrize(("role", "name", "subject"), FORBIDDEN_SUBSCRIBE)
async def test_what_nobody_may_hear(site: Site, role: BusRole, name: str, subject: str) -> None:
    async with site.client(role, name) as (client, told):
        await client.subscribe(subject)
        await client.flush()
        await until(lambda: bool(told))
    assert "permissions violation for subscription" in told[0]


@pytest.mark.parametrize(
    ("role", "name", "subject"),
    [
        (BusRole.NODE, "n1", subjects.evidence("n1", "clean")),
        (BusRole.NODE, "n1", subjects.log("alpha", JOB, 1, 0)),
        (BusRole.SCHEDULER, "", OTHERS_EVENT),
        (BusRole.SCHEDULER, "", subjects.node_event("joined", "n1")),
        (BusRole.SCHEDULER, "", subjects.decision("token", "t1")),
        (BusRole.MARP, "", subjects.dead_letter(EVENTS_STREAM, MARP_DURABLE)),
    ],
)
async def test_what_each_must_store(site: Site, role: BusRole, name: str, subject: str) -> None:
    fatal: list[FrenzyError] = []
    bus = await NatsBus.connect(
        site.access(role, name), name=connection_name(role, name), on_fatal=fatal.append
    )
    await bus.verify_streams()
    await bus.publish(subject, b"{}", message_id=f"{role}:{subject}")
    await bus.close()
    assert fatal == []


async def test_an_integration_reads_its_project_and_replays_it(site: Site) -> None:
    """The durable is made for it; what it may do is pull, look and acknowledge."""
    durable = connection_name(BusRole.INTEGRATION, "portal")
    async with site.client(BusRole.ADMIN) as (admin, _):
        await admin.jetstream().add_consumer(
            EVENTS_STREAM,
            durable_name=durable,
            filter_subject=subjects.project_events("alpha"),
            ack_policy=nats.js.api.AckPolicy.EXPLICIT,
        )
    async with site.client(BusRole.INTEGRATION, "portal") as (client, told):
        pull = await client.jetstream().pull_subscribe_bind(durable, EVENTS_STREAM)
        (message,) = await pull.fetch(1, timeout=5)
        await message.ack_sync()
        assert message.subject == EVENT
        info = await pull.consumer_info()
        assert info.num_pending == 0  # the other project's event is not among its own
    assert told == []


async def test_questions_are_answered_across_roles(site: Site) -> None:
    async with (
        site.client(BusRole.MARP) as (marp, marp_told),
        site.client(BusRole.GATEWAY) as (gateway, gateway_told),
    ):

        async def answer(message: nats.aio.msg.Msg) -> None:
            await message.respond(b"plans")

        await marp.subscribe(subjects.MARP_PLAN, queue="marp", cb=answer)
        await marp.flush()
        reply = await gateway.request(subjects.MARP_PLAN, b"?", timeout=5)
    assert reply.data == b"plans"
    assert marp_told == gateway_told == []


async def test_a_node_gets_secrets_from_the_gateway_and_nobody_else_sees_them(site: Site) -> None:
    async with (
        site.client(BusRole.GATEWAY) as (gateway, gateway_told),
        site.client(BusRole.NODE, "n1") as (node, node_told),
    ):

        async def answer(message: nats.aio.msg.Msg) -> None:
            await message.respond(message.subject.encode())

        await gateway.subscribe(subjects.SECRETS, queue="gateway", cb=answer)
        await gateway.flush()
        reply = await node.request(subjects.secrets("n1"), b"?", timeout=5)
    assert reply.data == subjects.secrets("n1").encode()
    assert gateway_told == node_told == []


async def test_a_new_identity_is_known_and_a_removed_one_gone_without_a_restart(
    site: Site,
) -> None:
    site.admit(BusRole.NODE, "n3")
    site.reload()
    fatal: list[FrenzyError] = []
    bus = await _eventually(
        lambda: NatsBus.connect(
            site.access(BusRole.NODE, "n3"), name="node-n3", on_fatal=fatal.append, timeout_s=2
        )
    )
    await bus.publish(subjects.evidence("n3", "clean"), b"", message_id="n3")

    assert site.users.remove(BusRole.NODE, "n3")
    site.reload()
    await until(lambda: bool(fatal))
    assert isinstance(fatal[0], Misconfigured)
    await bus.close()
    with pytest.raises(Misconfigured, match="refuses"):
        await NatsBus.connect(site.access(BusRole.NODE, "n3"), name="node-n3", timeout_s=5)


async def test_an_answer_that_comes_too_late_is_dropped_and_ends_nobody(site: Site) -> None:
    """The server forgets whom to let answer when it is restarted in between."""
    fatal: list[FrenzyError] = []
    marp = await NatsBus.connect(
        site.access(BusRole.MARP), name="marp", on_fatal=fatal.append, timeout_s=5
    )
    gateway = await NatsBus.connect(site.access(BusRole.GATEWAY), name="gateway", timeout_s=5)
    asked, restarted = asyncio.Event(), asyncio.Event()

    async def answer_late(_: Message) -> bytes:
        asked.set()
        await restarted.wait()
        return b"late"

    serving = await marp.serve(subjects.MARP_PLAN, answer_late)
    question = asyncio.ensure_future(gateway.request(subjects.MARP_PLAN, b"?", timeout_s=5))
    await asyncio.wait_for(asked.wait(), 5)
    site.server.kill()
    await until(lambda: not marp.connected)
    site.server.start()
    await until(lambda: marp.connected)
    restarted.set()
    with pytest.raises(Unavailable):
        await question
    await marp.publish(subjects.dead_letter(EVENTS_STREAM, "marp"), b"{}", message_id="after")
    assert fatal == []
    await serving.stop()
    await gateway.close()
    await marp.close()


async def test_a_stranger_is_refused(site: Site, tmp_path: Path) -> None:
    load_or_make(tmp_path / "stranger.nk")
    access = Access(url=site.access(BusRole.MARP).url, nkey=tmp_path / "stranger.nk")
    with pytest.raises(Misconfigured, match="refuses"):
        await NatsBus.connect(access, name="marp", timeout_s=5)
    with pytest.raises(Misconfigured, match="refuses"):
        await NatsBus.connect(access.url, name="marp", timeout_s=5)


async def _eventually(connect: Callable[[], Awaitable[NatsBus]]) -> NatsBus:
    for _ in range(50):
        try:
            return await connect()
        except FrenzyError:
            await asyncio.sleep(0.1)
    return await connect()
