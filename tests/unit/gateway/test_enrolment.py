"""How machines become nodes: tokens that work once, names that are taken, nodes shut out."""

from dataclasses import replace

import pytest
from tests.support.state import FakeClock

from frenzy_gateway.callers import Caller
from frenzy_gateway.enrolment import Enrolment
from frenzy_gateway.settings import GatewaySettings
from frenzy_shared.auth import Role, check_token, parse_enrolment_token, parse_token
from frenzy_shared.bus.keys import load_or_make
from frenzy_shared.bus.nats_permissions import BusRole
from frenzy_shared.bus.nats_users import Identity, UsersFile
from frenzy_shared.domain.cluster import Device
from frenzy_shared.errors import (
    Forbidden,
    InvalidSpec,
    InvalidState,
    Misconfigured,
    NotFound,
    Unauthenticated,
)
from frenzy_shared.messages.http import EnrolRequest, NodeTokenRequest
from frenzy_shared.settings import load
from frenzy_shared.state.memory import MemoryStore
from frenzy_shared.state.port import Change, NodeRegistration

OPERATOR = Caller(token_id="t", name="ops", role=Role.ADMIN, project="*")


@pytest.fixture
def enrolment(tmp_path):
    clock = FakeClock()
    return Enrolment(
        state=MemoryStore(clock),
        clock=clock,
        users=UsersFile(tmp_path / "etc" / "nats-users.json"),
        nats_url="tls://10.0.0.5:4222",
        authority=None,
    )


@pytest.fixture
def settings(tmp_path):
    """What makes the gateway of these tests enrol nodes."""
    return GatewaySettings(
        bus_users=tmp_path / "etc" / "nats-users.json", bus_public_url="tls://10.0.0.5:4222"
    )


@pytest.fixture
def key(tmp_path):
    return load_or_make(tmp_path / "node.nk")


def names(enrolment):
    return [one.name for one in enrolment.users.identities()]


async def test_a_token_admits_one_machine_once(enrolment, key):
    made = enrolment.invite(NodeTokenRequest())
    answer = await enrolment.enrol(EnrolRequest(token=made.token, node="n1", public_key=key))
    assert (answer.node, answer.nats_url) == ("n1", "tls://10.0.0.5:4222")
    assert names(enrolment) == ["n1"]
    assert key in enrolment.users.configuration.read_text()
    with pytest.raises(Forbidden, match="not valid"):
        await enrolment.enrol(EnrolRequest(token=made.token, node="n2", public_key=key))
    assert names(enrolment) == ["n1"]


async def test_a_nodes_token_fetches_blobs_and_nothing_else(enrolment, key):
    made = enrolment.invite(NodeTokenRequest())
    answer = await enrolment.enrol(EnrolRequest(token=made.token, node="n1", public_key=key))
    token = parse_token(answer.token)
    record = check_token(token, await enrolment.state.token(token.id), 0)
    assert record.role == Role.NODE
    assert not Role.NODE.includes(Role.VIEWER)


async def test_tokens_expire_and_are_for_the_node_they_name(enrolment, key):
    late = enrolment.invite(NodeTokenRequest(expires_in_s=60))
    named = enrolment.invite(NodeTokenRequest(node="n7", expires_in_s=600))
    enrolment.clock.advance(61)
    for token, node in ((late.token, "n1"), (named.token, "n1")):
        with pytest.raises(Forbidden, match="not valid"):
            await enrolment.enrol(EnrolRequest(token=token, node=node, public_key=key))
    await enrolment.enrol(EnrolRequest(token=named.token, node="n7", public_key=key))


async def test_a_secret_that_is_guessed_is_refused_like_an_unknown_token(enrolment, key):
    made = enrolment.invite(NodeTokenRequest())
    wrong = replace(parse_enrolment_token(made.token), secret="0" * 64)
    with pytest.raises(Forbidden) as refused:
        await enrolment.enrol(EnrolRequest(token=wrong.text, node="n1", public_key=key))
    unknown = replace(wrong, id="0" * 12)
    with pytest.raises(Forbidden) as also:
        await enrolment.enrol(EnrolRequest(token=unknown.text, node="n1", public_key=key))
    assert refused.value.message == also.value.message


async def test_a_name_that_is_taken_needs_a_token_that_names_it(enrolment, key, tmp_path):
    first = enrolment.invite(NodeTokenRequest())
    await enrolment.enrol(EnrolRequest(token=first.token, node="n1", public_key=key))
    other = load_or_make(tmp_path / "other.nk")
    second = enrolment.invite(NodeTokenRequest())
    with pytest.raises(InvalidState, match="already known"):
        await enrolment.enrol(EnrolRequest(token=second.token, node="n1", public_key=other))
    rotate = enrolment.invite(NodeTokenRequest(node="n1"))
    await enrolment.enrol(EnrolRequest(token=rotate.token, node="n1", public_key=other))
    assert key not in enrolment.users.configuration.read_text()


async def test_a_key_belongs_to_one_identity_and_its_refusal_does_not_use_the_token_up(
    enrolment, key, tmp_path
):
    enrolment.users.put(Identity(role=BusRole.SCHEDULER, public_key=key))
    made = enrolment.invite(NodeTokenRequest())
    with pytest.raises(InvalidState, match="already belongs to"):
        await enrolment.enrol(EnrolRequest(token=made.token, node="n1", public_key=key))
    other = load_or_make(tmp_path / "other.nk")
    await enrolment.enrol(EnrolRequest(token=made.token, node="n1", public_key=other))


async def test_a_revoked_node_is_gone_from_the_bus_and_its_token_is_void(enrolment, key):
    made = enrolment.invite(NodeTokenRequest())
    answer = await enrolment.enrol(EnrolRequest(token=made.token, node="n1", public_key=key))
    await enrolment.revoke(OPERATOR, "n1")
    assert key not in enrolment.users.configuration.read_text()
    token = parse_token(answer.token)
    with pytest.raises(Unauthenticated, match="not valid"):
        check_token(token, await enrolment.state.token(token.id), enrolment.clock.now_ms())
    with pytest.raises(NotFound, match="n1"):
        await enrolment.revoke(OPERATOR, "n1")


async def test_a_node_of_the_head_itself_is_not_shut_out(enrolment, key):
    enrolment.users.put(Identity(role=BusRole.NODE, name="local", public_key=key))
    with pytest.raises(InvalidState, match="the head itself runs it"):
        await enrolment.revoke(OPERATOR, "local")
    assert names(enrolment) == ["local"]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (NodeTokenRequest(node="Node 1"), "/node"),
        (NodeTokenRequest(expires_in_s=0), "/expires_in_s"),
        (NodeTokenRequest(expires_in_s=8 * 86_400), "/expires_in_s"),
    ],
)
def test_bad_invitations_name_their_field(enrolment, request_, field):
    with pytest.raises(InvalidSpec) as error:
        enrolment.invite(request_)
    assert error.value.problems[0].pointer == field


async def test_bad_requests_do_not_use_the_token_up(enrolment, key):
    made = enrolment.invite(NodeTokenRequest())
    for node, public in (("n 1", key), ('n1"}', key), ("n1", "UABC"), ("n1", key[:-1] + '"')):
        with pytest.raises(InvalidSpec):
            await enrolment.enrol(EnrolRequest(token=made.token, node=node, public_key=public))
    with pytest.raises(Forbidden, match="fze_"):
        await enrolment.enrol(EnrolRequest(token="frz_x", node="n1", public_key=key))
    await enrolment.enrol(EnrolRequest(token=made.token, node="n1", public_key=key))


def test_a_server_that_does_not_enrol_says_how(enrolment):
    closed = replace(enrolment, users=None)
    with pytest.raises(InvalidState) as error:
        closed.invite(NodeTokenRequest())
    assert "--listen" in error.value.suggestions[0]
    with pytest.raises(NotFound):
        closed.authority_pem()


def test_a_damaged_file_locks_nobody_out_silently(enrolment):
    enrolment.invite(NodeTokenRequest())
    path = enrolment.users.configuration.with_suffix(".json")
    path.write_text("{}")
    with pytest.raises(Exception, match="cannot be read") as error:
        enrolment.invite(NodeTokenRequest())
    assert error.value.code == "misconfigured"
    assert path.read_text() == "{}"


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "head.example"])
def test_tokens_do_not_travel_in_the_clear_off_this_machine(monkeypatch, host):
    monkeypatch.setenv("FRENZY_HTTP_HOST", host)
    with pytest.raises(Misconfigured, match="must not travel in the clear"):
        load(GatewaySettings)
    monkeypatch.setenv("FRENZY_HTTP_PLAIN", "true")
    assert load(GatewaySettings).http_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_certificate_but_never_half_a_one(monkeypatch, host):
    monkeypatch.setenv("FRENZY_HTTP_HOST", host)
    assert load(GatewaySettings).certificate is None
    monkeypatch.setenv("FRENZY_HTTP_CERT", "/tmp/chain.pem")
    with pytest.raises(Misconfigured, match="go together"):
        load(GatewaySettings)


async def test_a_revoked_node_shows_it_at_once_and_joins_again_as_good_as_new(gateway, key):
    device = Device(id="gpu-0", kind="T4", memory_bytes=2**34)
    registration = NodeRegistration(node="n1", boot_id="b", address="10.0.0.2", devices=(device,))
    async with await gateway.client() as client:

        async def join() -> None:
            made = (await client.post("/api/v1/nodes:token", json={})).json()
            body = {"token": made["token"], "node": "n1", "public_key": key}
            assert (await client.post("/enrol", json=body)).status_code == 201

        async def shown() -> tuple[str, str]:
            (node,) = (await client.get("/api/v1/nodes")).json()["nodes"]
            return node["state"], node["drain"]

        await join()
        await gateway.store.register_node("register", registration)
        await gateway.store.apply("up", Change(entity="node:n1", patch={"state": "UP"}))
        assert (await client.post("/api/v1/nodes/n1:revoke")).status_code == 204
        assert await shown() == ("DRAINING", "its credentials were revoked by admin-token")
        await join()
        assert await shown() == ("UP", "")


async def test_enrolling_again_does_not_undo_an_operators_drain(gateway):
    await gateway.store.register_node(
        "register", NodeRegistration(node="n1", boot_id="b", address="10.0.0.2", devices=())
    )
    await gateway.store.apply("d", Change(entity="node:n1", patch={"drain": "new fan"}))
    await gateway.service.operations.readmit("n1")
    assert (await gateway.store.node("n1")).drain == "new fan"
    await gateway.service.operations.readmit("n2")
