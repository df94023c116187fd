"""Secrets on a node: from the gateway's answer through memory into the ranks, and nowhere else."""

import hashlib

import pytest
from tests.integration.orchestrator.test_restarts import crash
from tests.support.agent import eventually, order
from tests.support.secrets import (
    SHOW_HASH,
    VALUE,
    commands_with,
    files_with,
    payloads_with,
)

from frenzy_orchestrator.adapters import secrets
from frenzy_shared.domain.job import StopReason
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import EvidenceKind, Phase, SecretsReply, SecretsRequest

HASH = hashlib.sha256(VALUE.encode()).hexdigest()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(secrets, "_PAUSE_S", 0.05)


class ScriptedGateway:
    """Gives the answers in turn, the last one again and again; None: it is silent."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked = []

    async def answer(self, message):
        self.asked.append((message.subject, SecretsRequest.decode(message.payload)))
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        return None if reply is None else reply.encode()


@pytest.fixture
async def gateway(cluster):
    """A gateway that gives what is asked for."""
    made = ScriptedGateway(SecretsReply(values={"HF_TOKEN": VALUE}))
    await cluster.control.bus.serve(subjects.SECRETS, made.answer)
    return made


def with_secret(cluster, script=SHOW_HASH):
    spec = cluster.script(script)
    return spec.model_copy(update={"secrets": {"HF_TOKEN": "hub-token"}})


async def prepared(cluster, spec):
    """Order an attempt up to GO, without waiting for its start."""
    given = order(spec=spec)
    await cluster.control.push("node-a", given)
    ready = await cluster.control.seen(EvidenceKind.PREPARED)
    go = given.model_copy(update={"phase": Phase.GO, "rendezvous": ready.rendezvous})
    await cluster.control.push("node-a", go)
    return go


async def test_ranks_get_them_and_no_file_argument_or_message_does(cluster, gateway):
    agent = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=with_secret(cluster)))
    await eventually(lambda: cluster.control.lines(), "its output")
    assert gateway.asked == [("frenzy.v1.rpc.gateway.secrets.node-a", _request())]
    assert commands_with(VALUE) == []
    assert files_with(VALUE, cluster.root) == []  # while it runs, and before anything is cleaned up
    (agent.folder() / "work" / "finish").touch()
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert [line.text for line in cluster.control.lines()] == [HASH]
    assert files_with(VALUE, cluster.root) == []
    streams = [stream.name for stream in subjects.STREAMS]
    sent = [m.payload for name in streams for m in cluster.broker.messages(name)]
    assert sent
    assert payloads_with(VALUE, sent) == []


async def test_a_job_without_secrets_asks_for_none(cluster, gateway):
    await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=cluster.script("print('hi')")))
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert gateway.asked == []


async def test_ranks_that_outlive_the_agent_need_nothing_again(cluster, gateway):
    first = await cluster.agent()
    await cluster.control.start_job("node-a", order(spec=with_secret(cluster)))
    await crash(first)
    second = await cluster.agent()
    (second.folder() / "work" / "finish").touch()
    exited = await cluster.control.seen(EvidenceKind.EXITED)
    assert exited.outcomes[0].reason == StopReason.COMPLETED
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert len(gateway.asked) == 1
    assert files_with(VALUE, cluster.root) == []


async def test_an_agent_that_restarts_before_the_start_asks_again(cluster, gateway):
    gateway.replies = [None]
    first = await cluster.agent()
    await prepared(cluster, with_secret(cluster, "pass"))
    await eventually(lambda: gateway.asked, "the question")
    await crash(first)
    gateway.replies = [SecretsReply(values={"HF_TOKEN": VALUE})]
    await cluster.agent()
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert cluster.control.evidence(EvidenceKind.REFUSED) == []
    assert cluster.control.evidence(EvidenceKind.EXITED)


async def test_a_gateway_that_is_away_for_a_moment_only_delays(cluster):
    await cluster.agent()
    await prepared(cluster, with_secret(cluster, "pass"))
    late = ScriptedGateway(SecretsReply(values={"HF_TOKEN": VALUE}))
    await cluster.control.bus.serve(subjects.SECRETS, late.answer)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert cluster.control.evidence(EvidenceKind.REFUSED) == []


@pytest.mark.parametrize(
    ("reply", "reason", "said"),
    [
        (None, StopReason.COMMUNICATION_ERROR, "the gateway gives no secrets: "),
        (SecretsReply(error="not now"), StopReason.COMMUNICATION_ERROR, "secrets: not now"),
        (SecretsReply(error="no such", permanent=True), StopReason.DATA_ERROR, "secrets: no such"),
    ],
)
async def test_without_them_nothing_starts_and_the_reason_is_told(cluster, reply, reason, said):
    agent = await cluster.agent()
    if reply is not None:
        await cluster.control.bus.serve(subjects.SECRETS, ScriptedGateway(reply).answer)
    await prepared(cluster, with_secret(cluster))
    told = await cluster.control.seen(EvidenceKind.REFUSED)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert told.reason == reason
    assert said in told.message
    assert not (agent.folder() / "launch.json").exists()


async def test_a_stop_does_not_wait_for_them(cluster, gateway, monkeypatch):
    monkeypatch.setattr(secrets, "_PAUSE_S", 600.0)
    gateway.replies = [None]
    agent = await cluster.agent()
    go = await prepared(cluster, with_secret(cluster))
    await eventually(lambda: gateway.asked, "the question")
    await cluster.control.stop_job("node-a", go)
    await cluster.control.seen(EvidenceKind.CLEAN)
    assert cluster.control.evidence(EvidenceKind.REFUSED) == []
    assert not (agent.folder() / "run.json").exists()


def _request():
    return SecretsRequest(job="j1", attempt=1)
