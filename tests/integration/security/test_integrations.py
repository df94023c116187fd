"""The how-to "Let a program follow events", against real processes: made, followed, shut out."""

import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.gateway.conftest import ADMIN, GatewayProcess
from tests.support.nats_site import Site
from tests.support.valkey import ValkeyProcess, valkey, valkey_server

from frenzy.cli.app import run
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_permissions import BusRole
from frenzy_shared.messages import subjects
from frenzy_shared.messages.envelope import CloudEvent, event_type

__all__ = ["valkey", "valkey_server"]

SERVICES = ((BusRole.ADMIN, "", ""), (BusRole.GATEWAY, "", ""))
HOWTO = Path(__file__).resolve().parents[3] / "docs" / "howto" / "follow-events.md"


class Cluster:
    """A bus with the rules of `frenzy up`, a gateway beside it, and a user's shell."""

    def __init__(self, site: Site, bus: NatsBus, gateway: GatewayProcess, home: Path) -> None:
        self.site = site
        self.bus = bus
        self.home = home
        self.count = 0
        self.url = f"http://127.0.0.1:{gateway.port}"

    async def frenzy(self, *arguments: str) -> str:
        """Run a command; then nats-server reads its users again, as its keeper makes it."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert await asyncio.to_thread(run, [*arguments, "--url", self.url]) == 0
        self.site.reload()
        return out.getvalue()

    async def run(self, *command: str) -> tuple[str, str, int]:
        process = await self.start(*command)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return out.decode(), err.decode(), process.returncode or 0

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self.home,
            env={"PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    async def happen(self, project: str, kind: str, job: str) -> None:
        self.count += 1
        event = CloudEvent(
            id=f"{job}:{self.count}:0",
            source=f"/frenzy/{project}",
            type=event_type("job", kind),
            subject=f"job:{job}",
            time="2026-01-01T00:00:00Z",
            data={"record": {"state": kind.upper()}},
        )
        subject = subjects.job_event(project, kind, job)
        await self.bus.publish(subject, event.encode(), message_id=event.id)


@pytest.fixture
async def cluster(
    tmp_path: Path, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    site = Site(tmp_path / "site", SERVICES)
    site.server.start()
    bus = await NatsBus.connect(site.access(BusRole.ADMIN), name="admin")
    await bus.ensure_streams()
    gateway = GatewayProcess(
        tmp_path,
        site.access(BusRole.GATEWAY).url,
        valkey.url,
        nats_nkey=str(site.key(BusRole.GATEWAY)),
        bus_users=str(site.users_path),
        bus_public_url=site.access(BusRole.GATEWAY).url,
    )
    try:
        await gateway.ready()
        home = tmp_path / "home"
        home.mkdir()
        monkeypatch.chdir(home)
        monkeypatch.setenv("FRENZY_TOKEN", ADMIN.text)
        yield Cluster(site, bus, gateway, home)
    finally:
        gateway.process.kill()
        gateway.process.wait(10)
        await bus.close()
        site.server.stop()


def commands() -> Iterator[list[str]]:
    """The how-to's own commands, without what only explains them."""
    for line in HOWTO.read_text().splitlines():
        if line.startswith("$ frenzy admin integration"):
            yield line.removeprefix("$ frenzy ").partition("#")[0].split()


async def test_the_howto_and_what_the_made_key_may_not_do(cluster: Cluster) -> None:
    create, list_, rotate, revoke = commands()
    assert await cluster.frenzy(*create) == "portal\n"
    await asyncio.sleep(0.3)  # the server reads its users
    await look_around(cluster)
    _, err, code = await cluster.run(sys.executable, "portal/follow.py")
    assert (err, code) == ("usage: python follow.py FOLDER [COUNT]\n", 1)
    await cluster.happen("audio", "failed", "other")
    await cluster.happen("vision", "submitted", "j1")
    await cluster.happen("vision", "failed", "j1")

    (example,) = re.findall(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    (cluster.home / "own.py").write_text(example)
    out, err, code = await cluster.run(sys.executable, "own.py")
    assert (out, code) == ("dev.frenzy.job.failed.v1 job:j1 FAILED\n", 0), err

    follower = await cluster.start(sys.executable, "portal/follow.py", "portal")
    await cluster.happen("vision", "succeeded", "j2")
    event = json.loads(await asyncio.wait_for(follower.stdout.readline(), 20))
    assert (event["type"], event["subject"]) == ("dev.frenzy.job.succeeded.v1", "job:j2")
    table = await cluster.frenzy(*list_)
    assert table.splitlines()[1].split()[:2] == ["portal", "vision"]
    assert table.splitlines()[1].endswith("connected")

    # Another key: the old one's connection ends by itself, the place stays.
    await cluster.frenzy(*rotate)
    said = (await asyncio.wait_for(follower.communicate(), 20))[1].decode()
    assert follower.returncode == 1
    assert "the server refuses the key: it was revoked or rotated" in said
    await cluster.happen("vision", "failed", "j3")
    out, err, code = await cluster.run(sys.executable, "portal-new/follow.py", "portal-new", "1")
    assert json.loads(out)["subject"] == "job:j3", err
    _, err, code = await cluster.run(sys.executable, "portal/follow.py", "portal", "1")
    assert (code, "the server refuses the key" in err) == (1, True)

    follower = await cluster.start(sys.executable, "portal-new/follow.py", "portal-new")
    await cluster.frenzy(*revoke)
    await asyncio.wait_for(follower.communicate(), 20)
    assert follower.returncode == 1
    assert await cluster.bus.durable_state(subjects.EVENTS_STREAM, "integration-portal") is None


async def look_around(cluster: Cluster) -> None:
    """Try with the made key what only others may; ``test_bus_permissions`` has more of it."""
    key = cluster.home / "portal" / "key.nk"
    durable = subjects.EVENTS_STREAM, "marp"
    for subject in (
        subjects.job_event("vision", "failed", "j"),
        f"$JS.API.CONSUMER.MSG.NEXT.{durable[0]}.{durable[1]}",
        f"$JS.API.CONSUMER.CREATE.{durable[0]}.integration-portal",
        f"$JS.API.CONSUMER.DELETE.{durable[0]}.integration-portal",
        f"$JS.API.STREAM.INFO.{durable[0]}",
        f"$JS.API.STREAM.MSG.GET.{subjects.DECISIONS_STREAM}",
    ):
        assert await refused(cluster, key, publish=subject), subject
    for subject in (subjects.project_events("audio"), subjects.ALL_EVENTS, ">"):
        assert await refused(cluster, key, subscribe=subject), subject


async def refused(cluster: Cluster, key: Path, *, publish: str = "", subscribe: str = "") -> bool:
    async with cluster.site.client_with(key, "integration-portal") as (client, told):
        if publish:
            await client.publish(publish, b"{}")
        else:
            await client.subscribe(subscribe)
        await client.flush()
        for _ in range(100):
            if told:
                return "permissions violation" in told[0]
            await asyncio.sleep(0.02)
    return False
