"""Which node gets which secrets, when: only what it is to run now."""

from dataclasses import replace

import pytest
from tests.support.scheduling import placement
from tests.support.secrets import KEYS, VALUE, key_file
from tests.support.state import registration
from tests.unit.gateway.conftest import SPEC

from frenzy_gateway.adapters.sealing import Sealer
from frenzy_gateway.secret_delivery import SecretDelivery
from frenzy_shared.bus.port import Message
from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import SecretsReply, SecretsRequest
from frenzy_shared.state.secrets import SecretRecord

DEFAULT = ProjectName("default")


@pytest.fixture
async def running(gateway, admin, tmp_path):
    """A job with a secret, placed on n1; ask(node, attempt) asks for its secrets."""
    seal = Sealer.load(key_file(tmp_path))
    object.__setattr__(gateway.service, "seal", seal)
    delivery = SecretDelivery(state=gateway.store, seal=seal)
    served = await gateway.bus.serve(subjects.SECRETS, delivery.answer)
    await admin.put("/api/v1/projects/default/secrets/hub-token", content=VALUE)
    await admin.put("/api/v1/projects/default/secrets/other", content="not asked for")
    spec = {**SPEC, "secrets": {"HF_TOKEN": "hub-token"}}
    job = (await admin.post("/api/v1/jobs", json=spec)).json()["id"]
    for node in ("n1", "n2"):
        await gateway.store.register_node(node, registration(node))
    held = to_json(placement("n1/gpu-0", kind="emulated-a100-40"))
    await gateway.move(job, JobState.STARTING, placement=held, attempt=2)

    class Running:
        id = job

        @staticmethod
        async def ask(node="n1", attempt=2, of=job):
            payload = SecretsRequest(job=of, attempt=attempt).encode()
            answer = await gateway.bus.request(subjects.secrets(node), payload, timeout_s=1.0)
            return SecretsReply.decode(answer)

    yield Running()
    await served.stop()


@pytest.mark.parametrize("state", [JobState.RESERVED, JobState.STARTING, JobState.RUNNING])
async def test_the_node_of_the_present_attempt_gets_just_its_secrets(gateway, running, state):
    await gateway.move(running.id, state)
    reply = await running.ask()
    assert (reply.values, reply.error) == ({"HF_TOKEN": VALUE}, "")


async def test_nobody_else_gets_any(gateway, running, caplog):
    for asked in (
        await running.ask("n2"),  # another node
        await running.ask(attempt=1),  # an attempt that is over
        await running.ask(attempt=3),  # one that is not yet
        await running.ask(of="nosuchjob"),
    ):
        assert asked == SecretsReply(error="this attempt is not to run on this node now")
    assert f"node n2 is refused secrets of job {running.id} attempt 2" in caplog.text


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.STOPPING, JobState.FAILED])
async def test_a_job_that_is_not_placed_gives_nothing_away(gateway, running, state):
    await gateway.move(running.id, state)
    assert (await running.ask()).values == {}


async def test_another_projects_secret_is_never_given(gateway, running):
    """Not even when whoever writes the store moves its sealed text into the job's project."""
    seal = gateway.service.seal
    await gateway.store.delete_secret(DEFAULT, "hub-token")
    vision = SecretRecord(
        project=ProjectName("vision"),
        name="hub-token",
        sealed=seal.seal("of vision", "vision/hub-token"),
        updated_ms=1,
    )
    await gateway.store.put_secret(vision)
    reply = await running.ask()
    assert (reply.values, reply.permanent) == ({}, True)
    assert reply.error == "project default has no secret 'hub-token' any more"
    await gateway.store.put_secret(replace(vision, project=DEFAULT))
    reply = await running.ask()
    assert (reply.values, reply.permanent) == ({}, True)
    assert "sealed for another project or name" in reply.error


async def test_a_lost_key_is_said_with_what_to_do(gateway, running, tmp_path):
    delivery = SecretDelivery(state=gateway.store, seal=Sealer.load(key_file(tmp_path, KEYS[1])))
    question = SecretsRequest(job=running.id, attempt=2).encode()
    asked = Message(subject=subjects.secrets("n1"), payload=question)
    reply = SecretsReply.decode(await delivery.answer(asked))
    assert reply.permanent
    assert "a key that this gateway lacks" in reply.error
    assert "set it again: frenzy secret set hub-token" in reply.error


async def test_more_than_a_message_holds_is_refused(gateway, running, monkeypatch):
    monkeypatch.setattr("frenzy_gateway.secret_delivery._MOST_BYTES", 10)
    reply = await running.ask()
    assert (reply.values, reply.permanent) == ({}, True)
    assert "together" in reply.error


async def test_a_question_that_is_none_is_answered_and_logged(gateway, running, caplog):
    answer = await gateway.bus.request(subjects.secrets("n1"), b"{}", timeout_s=1.0)
    assert SecretsReply.decode(answer).permanent
    assert "node n1 asked for secrets in a way that is not known" in caplog.text


async def test_logs_name_variables_and_never_show_values(gateway, running, caplog):
    caplog.set_level("DEBUG")
    reply = await running.ask()
    assert f"node n1 got secrets of job {running.id} attempt 2: HF_TOKEN" in caplog.text
    assert VALUE not in caplog.text
    assert VALUE not in repr(reply)
