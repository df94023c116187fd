"""Programs that follow events: a key, a place in the stream, and the end of both."""

import pytest
from tests.support.state import FakeClock

from frenzy_gateway.callers import Caller
from frenzy_gateway.integrations import Integrations
from frenzy_shared.auth import Role
from frenzy_shared.bus.keys import load_or_make
from frenzy_shared.bus.memory import MemoryBus
from frenzy_shared.bus.nats_users import UsersFile
from frenzy_shared.errors import InvalidSpec, InvalidState, NotFound, Unavailable
from frenzy_shared.messages import subjects
from frenzy_shared.messages.integrations import IntegrationRequest

OPS = Caller(token_id="t", name="ops", role=Role.ADMIN, project="*")
EVENTS = subjects.EVENTS_STREAM


@pytest.fixture
def integrations(tmp_path):
    return Integrations(
        bus=MemoryBus(),
        clock=FakeClock(),
        users=UsersFile(tmp_path / "nats-users.json"),
        nats_url="tls://10.0.0.5:4222",
        authority_pem=lambda: "PEM",
    )


@pytest.fixture
def key(tmp_path):
    return load_or_make(tmp_path / "one.nk")


@pytest.fixture
def other_key(tmp_path):
    return load_or_make(tmp_path / "other.nk")


async def publish(integrations, *subject):
    for one in subject:
        await integrations.bus.publish(one, b"{}", message_id=one)


async def views(integrations):
    return {one.name: one for one in (await integrations.list()).integrations}


async def test_it_gets_what_it_needs_and_its_projects_events_wait_for_it(integrations, key):
    await publish(integrations, subjects.job_event("vision", "submitted", "old"))
    request = IntegrationRequest(name="portal", public_key=key, project="vision")
    access = await integrations.create(OPS, request)
    assert (access.url, access.stream) == ("tls://10.0.0.5:4222", EVENTS)
    assert (access.durable, access.inbox_prefix) == (
        "integration-portal",
        "_INBOX_integration-portal",
    )
    assert access.authority == "PEM"
    await publish(
        integrations,
        subjects.job_event("vision", "failed", "j"),
        subjects.project_event("changed", "vision"),
        subjects.job_event("audio", "failed", "j"),
        subjects.node_event("lost", "n1"),
    )
    view = (await views(integrations))["portal"]
    assert (view.project, view.waiting, view.missing) == ("vision", 2, False)
    assert key in integrations.users.configuration.read_text()


async def test_kinds_narrow_it_and_history_widens_it(integrations, key, other_key):
    await publish(integrations, subjects.job_event("vision", "failed", "old"))
    await integrations.create(
        OPS,
        IntegrationRequest(
            name="alarms", public_key=key, project="vision", events=("job.failed",), history=True
        ),
    )
    await integrations.create(
        OPS,
        IntegrationRequest(
            name="watch", public_key=other_key, project="*", events=("job.failed", "node.lost")
        ),
    )
    await publish(
        integrations,
        subjects.job_event("vision", "succeeded", "j"),
        subjects.job_event("audio", "failed", "j"),
        subjects.node_event("lost", "n1"),
        subjects.node_event("joined", "n1"),
    )
    found = await views(integrations)
    assert {name: view.waiting for name, view in found.items()} == {"alarms": 1, "watch": 2}
    assert found["alarms"].events == ("job.failed",)
    assert found["watch"].project == "*"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "Portal"}, "name: use 1-40"),
        ({"name": "x" * 41}, "name: use 1-40"),
        ({"project": "cluster"}, "reserved"),
        ({"public_key": "S" * 56}, "public_key: must be the public part"),
        ({"events": ("job.exploded",)}, "'job.exploded' is no kind of event of project vision"),
        ({"events": ("node.lost",)}, "known: job.submitted"),
        ({"events": ("job.",)}, "is no kind of event"),
        ({"events": ("node.exploded",), "project": "*"}, "node.joined"),
    ],
)
async def test_wrong_fields_are_named_and_nobody_is_admitted(integrations, key, wrong, says):
    right = {"name": "portal", "public_key": key, "project": "vision"}
    with pytest.raises(InvalidSpec) as refused:
        await integrations.create(OPS, IntegrationRequest(**{**right, **wrong}))
    assert says in refused.value.message
    assert integrations.users.identities() == ()


async def test_names_and_keys_are_taken_once(integrations, key, other_key):
    await integrations.create(OPS, IntegrationRequest(name="portal", public_key=key))
    for name, public_key, says in (
        ("portal", other_key, "already known"),
        ("b", key, "belongs to"),
    ):
        with pytest.raises(InvalidState, match=says):
            await integrations.create(OPS, IntegrationRequest(name=name, public_key=public_key))
    assert len(integrations.users.identities()) == 1


async def test_a_request_whose_answer_was_lost_is_answered_again(integrations, key):
    request = IntegrationRequest(name="portal", public_key=key, events=("job.failed",))
    first = await integrations.create(OPS, request)
    await publish(integrations, subjects.job_event("default", "failed", "j"))
    integrations.clock.advance(5)
    assert await integrations.create(OPS, request) == first
    assert (await views(integrations))["portal"].waiting == 1


async def test_without_the_bus_nobody_is_admitted(integrations, key):
    integrations.bus.broker.available = False
    with pytest.raises(Unavailable):
        await integrations.create(OPS, IntegrationRequest(name="portal", public_key=key))
    assert integrations.users.identities() == ()


async def test_another_key_keeps_the_place(integrations, key, other_key):
    await integrations.create(OPS, IntegrationRequest(name="portal", public_key=key))
    await publish(integrations, subjects.job_event("default", "failed", "j"))
    access = await integrations.rotate(OPS, "portal", other_key)
    assert access.durable == "integration-portal"
    text = integrations.users.configuration.read_text()
    assert (key in text, other_key in text) == (False, True)
    assert (await views(integrations))["portal"].waiting == 1


async def test_a_place_that_was_lost_is_told_and_made_again(integrations, key, other_key):
    await integrations.create(
        OPS, IntegrationRequest(name="portal", public_key=key, events=("job.failed",))
    )
    await integrations.bus.remove_durable(EVENTS, "integration-portal")
    assert (await views(integrations))["portal"].missing
    await integrations.rotate(OPS, "portal", other_key)
    await publish(
        integrations,
        subjects.job_event("default", "failed", "j"),
        subjects.job_event("default", "succeeded", "j"),
    )
    view = (await views(integrations))["portal"]
    assert (view.missing, view.waiting) == (False, 1)


async def test_a_revoked_one_leaves_nothing_and_its_name_is_free(integrations, key):
    await integrations.create(OPS, IntegrationRequest(name="portal", public_key=key, history=True))
    await integrations.revoke(OPS, "portal")
    assert await views(integrations) == {}
    assert key not in integrations.users.configuration.read_text()
    assert await integrations.bus.durable_state(EVENTS, "integration-portal") is None
    for action in (
        integrations.revoke(OPS, "portal"),
        integrations.rotate(OPS, "portal", key),
    ):
        with pytest.raises(NotFound, match="no integration 'portal'"):
            await action
    await integrations.create(OPS, IntegrationRequest(name="portal", public_key=key))


async def test_elsewhere_than_beside_the_bus_it_says_so(admin, problem):
    body = problem(await admin.get("/api/v1/integrations"), 409, "invalid_state")
    assert "FRENZY_BUS_USERS" in body["suggestions"][0]
