"""Replicas as processes: what `frenzy up` starts, killed as the kernel kills."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.scheduler import plan_job, submit_job
from tests.support.scheduling import plan
from tests.support.valkey import ValkeyProcess

from frenzy_shared.domain.job import StopReason
from frenzy_shared.runtime import EXIT_MISCONFIGURED

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(nats_url: str, valkey: ValkeyProcess, tmp_path) -> Iterator[Start]:
    """Start a scheduler process; whatever is left is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(instance: str, **settings: str) -> subprocess.Popen[bytes]:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("FRENZY_")},
            "FRENZY_NATS_URL": nats_url,
            "FRENZY_REDIS_URL": valkey.url,
            "FRENZY_INSTANCE": instance,
            **settings,
        }
        with (tmp_path / f"{instance}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "frenzy_scheduler"],
                env=environment,
                stdout=log,
                stderr=log,
            )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()


def leader(valkey: ValkeyProcess) -> str | None:
    with valkey.client() as client:
        return client.get("{frenzy}:lease:control")


async def test_a_killed_leader_is_replaced_within_five_seconds_and_places_nothing_twice(
    site, start, valkey
):
    replicas = {name: start(name) for name in ("s1", "s2")}

    async def led():
        return leader(valkey)

    first = await site.until(led, "a leader")
    for name in ("n1", "n2"):
        await site.agent(name, 2, exit_reason=StopReason.COMPLETED)
    for number in range(6):
        await submit_job(site.store, f"j{number}")
        await plan_job(site.store, f"j{number}", plan("p1", "rtx", 1 + number % 3))
    await site.reaches("j0", "RESERVED", "STARTING", "RUNNING", "STOPPING", "SUCCEEDED")
    replicas[first].send_signal(signal.SIGKILL)
    killed = time.monotonic()

    async def replaced():
        return leader(valkey) not in {None, first}

    await site.until(replaced, "another leader")
    assert time.monotonic() - killed < 5
    for number in range(6):
        record = await site.reaches(f"j{number}", "SUCCEEDED", timeout_s=20)
        assert record.attempt == 1
        versions = [entry["version"] for entry in await site.store.timeline(record.id)]
        assert versions == sorted(set(versions))
    assert set((await site.owners()).values()) == {""}


async def test_a_stopped_leader_hands_over_at_once(site, start, valkey):
    first = start("s1")

    async def led():
        return leader(valkey) == "s1"

    await site.until(led, "s1 leads")
    first.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, 10) == 0
    assert leader(valkey) is None


async def test_a_missing_stream_is_said_in_one_line(site, start, nats_url, tmp_path):
    import nats

    client = await nats.connect(nats_url)
    await client.jetstream().delete_stream("FRENZY_EVIDENCE")
    await client.close()
    process = start("s1")
    assert await asyncio.to_thread(process.wait, 20) == EXIT_MISCONFIGURED
    assert "FRENZY_EVIDENCE" in (tmp_path / "s1.log").read_text()


async def test_an_unknown_policy_is_refused(start, tmp_path):
    process = start("s1", FRENZY_POLICY="magic")
    assert await asyncio.to_thread(process.wait, 20) == EXIT_MISCONFIGURED
    assert "FRENZY_POLICY" in (tmp_path / "s1.log").read_text()
