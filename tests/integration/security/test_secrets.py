"""A secret through the real system: a script gets it, and it is written down nowhere.

Searched are every file of every process, Valkey's and JetStream's included, after all have ended;
the arguments and environments of all processes of the machine while the script runs; and what
the API tells. A text that may be written down is searched for as well: the search must find it.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.secrets import (
    SHOW_HASH,
    VALUE,
    commands_with,
    environments_with,
    files_with,
)

from frenzy import Client
from frenzy.local import credentials, identities, stack
from frenzy.local.child import Child
from frenzy.local.layout import Layout
from frenzy.local.options import Options
from frenzy.local.preparing import create_streams, load_functions
from frenzy_shared.bus.nats import NatsBus
from frenzy_shared.bus.nats_connection import Access
from frenzy_shared.bus.nats_permissions import BusRole, connection_name
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import SecretsReply, SecretsRequest

OPEN_TEXT = "no-secret-" + "pw4" * 8
NODES = dict.fromkeys(("node-a", "node-b"), "emulated-small:1:256MiB:1.0")


@dataclass
class System:
    """Everything that runs; only node-a has an agent."""

    layout: Layout
    url: str
    token: str
    bus: Access

    async def ask(self, node: str, job: str, attempt: int) -> SecretsReply:
        """Ask for secrets as somebody with a node's key does."""
        key = identities.key_file(self.layout.keys, BusRole.NODE, node)
        access = Access(url=self.bus.url, nkey=key)
        bus = await NatsBus.connect(access, name=connection_name(BusRole.NODE, node))
        question = SecretsRequest(job=job, attempt=attempt).encode()
        try:
            answer = await bus.request(subjects.secrets(node), question, timeout_s=5.0)
        finally:
            await bus.close()
        return SecretsReply.decode(answer)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[tuple[System, asyncio.Runner, AsyncExitStack]]:
    layout = Layout(tmp_path / "up")
    layout.create()
    secret = credentials.load_or_make(layout)
    plan = stack.build(layout, Options(port=0, nodes=NODES), secret)
    running = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            runner.run(_start_all(running, plan))
            yield System(layout, plan.url, secret.admin_token, plan.nats), runner, running
        finally:
            runner.run(running.aclose())


@pytest.mark.timeout(120)
def test_a_secret_reaches_the_ranks_and_is_written_down_nowhere(system, tmp_path):
    site, runner, running = system
    with Client(site.url, site.token) as client:
        _set_secret(site, "hub-token", f"{VALUE}\n")
        job = client.submit(_spec(tmp_path / "code"))
        _until(lambda: list(job.logs()), "its first line")
        attempt = job.refresh().attempt
        work = site.layout.node("node-a") / "attempts" / f"{job.id}.{attempt}" / "work"

        assert commands_with(VALUE) == []
        assert {_name(process) for process in environments_with(VALUE)} == {"a rank"}
        assert runner.run(site.ask("node-a", job.id, attempt)).values == {"HF_TOKEN": VALUE}
        for node, number in (("node-b", attempt), ("node-a", attempt + 1)):
            assert runner.run(site.ask(node, job.id, number)).values == {}

        (work / "finish").touch()
        assert job.wait(60.0).state == "SUCCEEDED"
        assert runner.run(site.ask("node-a", job.id, attempt)).values == {}
        assert list(job.logs()) == [f"[0] {hashlib.sha256(VALUE.encode()).hexdigest()}"]
        told = [event.model_dump_json() for event in job.events()]
        told += [job.refresh().model_dump_json(), str(job.spec()), str(client.secrets.list())]
        assert VALUE not in "".join(told)
    runner.run(running.aclose())  # what is still buffered is written

    assert files_with(VALUE, site.layout.root) == []
    found = {path.relative_to(site.layout.root).parts[0] for path in _with_open_text(site)}
    assert {"valkey", "nats", "nodes"} <= found  # the search finds what is there


def _set_secret(site: System, name: str, text: str) -> None:
    """Set a secret as a person does."""
    server = {"FRENZY_URL": site.url, "FRENZY_TOKEN": site.token}
    subprocess.run(
        [Path(sys.executable).with_name("frenzy"), "secret", "set", name],
        input=text.encode(),
        env={**os.environ, **server},
        check=True,
    )


def _with_open_text(site: System) -> list[Path]:
    return files_with(OPEN_TEXT, site.layout.root)


def _spec(code: Path) -> dict[str, object]:
    code.mkdir()
    (code / "train.py").write_text(SHOW_HASH)
    return {
        "model": "gpt2-tiny",
        "sequence_length": 64,
        "global_batch_size": 1,
        "entrypoint": {"script": "train.py"},
        "workdir": str(code),
        "env": {"OPEN": OPEN_TEXT},
        "secrets": {"HF_TOKEN": "hub-token"},
    }


async def _start_all(running: AsyncExitStack, plan: stack.Stack) -> None:
    for spec in plan.servers:
        await _start(running, Child(spec, lambda: None))
    await create_streams(plan.nats)
    await load_functions(plan.redis_url)
    wanted = [spec for spec in plan.services if spec.name != "agent-node-b"]
    await asyncio.gather(*(_start(running, Child(spec, lambda: None)) for spec in wanted))


async def _start(running: AsyncExitStack, child: Child) -> None:
    running.push_async_callback(child.stop)
    await child.start()


def _until(condition, what: str, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s} s"
        time.sleep(0.1)


def _name(process: Path) -> str:
    command = (process / "cmdline").read_bytes()
    return "a rank" if b"frenzy_trainer.launch" in command else command.decode(errors="replace")
