"""What administrators do through the SDK, blocking and not."""

import httpx
import pytest
from tests.support.api import NOW, ScriptedApi, node_list, ok

from frenzy import AsyncClient, Client
from frenzy_shared.messages.http import DeadLetterList, DeadLetterView
from frenzy_shared.messages.v1 import Reconciliation

NODE = node_list().nodes[0]
LETTER = DeadLetterView(
    id=3,
    time=NOW,
    subject="s",
    stream="FRENZY_EVENTS",
    sequence=7,
    consumer="marp",
    deliveries=10,
    reason="no",
    size_bytes=2,
    excerpt="{}",
)


@pytest.fixture
def api():
    api = ScriptedApi()
    for verb in ("drain", "undrain", "confirm-dead"):
        api.on("POST", f"/nodes/n1:{verb}", ok(NODE))
    api.on("DELETE", "/nodes/n1", httpx.Response(204))
    other = LETTER.model_copy(update={"id": 4})
    first = DeadLetterList(letters=(LETTER,), next_after=3)
    api.on("GET", "/admin/dlq", ok(first), ok(DeadLetterList(letters=(other,))))
    for verb in ("replay", "drop"):
        api.on("POST", f"/admin/dlq/3:{verb}", ok(LETTER))
    return api.on("POST", "/admin/reconcile", ok(Reconciliation(count=2)))


def test_blocking(api):
    with Client("http://f", "t", transport=httpx.MockTransport(api)) as client:
        admin = client.admin
        assert admin.drain("n1", reason="fan", deadline_s=5) == NODE
        assert admin.undrain("n1") == admin.confirm_dead("n1") == NODE
        admin.forget_node("n1")
        assert api.sent("DELETE", "/nodes/n1")
        assert [letter.id for letter in admin.dead_letters()] == [3, 4]
        assert admin.replay_dead_letter(3) == admin.drop_dead_letter(3) == LETTER
        assert admin.reconcile(apply=True).count == 2
    assert dict(api.requests[-1].url.params) == {"apply": "true"}


async def test_awaited(api):
    transport = httpx.MockTransport(api.asynchronous)
    async with AsyncClient("http://f", "t", transport=transport) as client:
        admin = client.admin
        assert await admin.drain("n1") == NODE
        assert await admin.undrain("n1") == await admin.confirm_dead("n1") == NODE
        await admin.forget_node("n1")
        assert api.sent("DELETE", "/nodes/n1")
        assert [letter.id async for letter in admin.dead_letters()] == [3, 4]
        assert await admin.replay_dead_letter(3) == await admin.drop_dead_letter(3) == LETTER
        assert (await admin.reconcile()).count == 2
