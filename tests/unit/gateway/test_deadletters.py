"""Dead letters over HTTP: shown with why, sent again as new, thrown away."""

import pytest

from frenzy_shared.auth import Role
from frenzy_shared.bus.delivery import dead_letter
from frenzy_shared.bus.port import Message
from frenzy_shared.messages import subjects

SUBJECT = subjects.evidence("n1", "clean")


async def bury(gateway, number, payload=b'{"kind":"clean"}\n', consumer="controller"):
    message = Message(
        subject=SUBJECT,
        payload=payload,
        headers={"traceparent": "00-x", "Nats-Msg-Id": f"n1:{number}"},
        stream=subjects.EVIDENCE_STREAM,
        sequence=number,
        deliveries=10,
    )
    letter = dead_letter(message, consumer, "ValueError('no')")
    await gateway.bus.publish(
        letter.subject, letter.payload, message_id=letter.message_id, headers=letter.headers
    )


@pytest.fixture
async def admin(gateway):
    gateway.broker.idle_s = 0.01
    async with await gateway.client() as client:
        yield client


async def listed(admin, query=""):
    answer = await admin.get(f"/api/v1/admin/dlq{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_letters_say_where_they_come_from_and_why(gateway, admin):
    assert await listed(admin) == {"letters": [], "next_after": None}
    await bury(gateway, 7)
    (letter,) = (await listed(admin))["letters"]
    assert letter.pop("time").startswith("20")
    assert letter == {
        "id": 1,
        "subject": SUBJECT,
        "stream": "FRENZY_EVIDENCE",
        "sequence": 7,
        "consumer": "controller",
        "deliveries": 10,
        "reason": "ValueError('no')",
        "size_bytes": 17,
        "excerpt": '{"kind":"clean"}\N{REPLACEMENT CHARACTER}',
    }


async def test_the_list_has_pages(gateway, admin):
    for number in range(1, 6):
        await bury(gateway, number)
    first = await listed(admin, "?limit=2")
    assert ([one["id"] for one in first["letters"]], first["next_after"]) == ([1, 2], 2)
    last = await listed(admin, "?limit=3&after=2")
    assert ([one["id"] for one in last["letters"]], last["next_after"]) == ([3, 4, 5], None)


async def test_a_replay_is_a_new_message_where_it_came_from(gateway, admin):
    await bury(gateway, 7)
    assert (await admin.post("/api/v1/admin/dlq/1:replay")).json()["subject"] == SUBJECT
    (again,) = gateway.broker.messages(subjects.EVIDENCE_STREAM)
    assert (again.subject, again.payload) == (SUBJECT, b'{"kind":"clean"}\n')
    assert again.headers["traceparent"] == "00-x"
    assert again.headers["Nats-Msg-Id"].startswith("replay:1:")
    assert not [name for name in again.headers if name.startswith("Frenzy-")]
    assert (await listed(admin))["letters"] == []
    answer = await admin.post("/api/v1/admin/dlq/1:replay")
    assert (answer.status_code, answer.json()["detail"]) == (404, "no dead letter 1")


async def test_a_letter_without_its_message_cannot_be_sent_again(gateway, admin):
    await bury(gateway, 7, payload=b"")
    answer = await admin.post("/api/v1/admin/dlq/1:replay")
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
    assert len((await listed(admin))["letters"]) == 1


async def test_drop(gateway, admin):
    await bury(gateway, 7)
    await bury(gateway, 8)
    assert (await admin.post("/api/v1/admin/dlq/1:drop")).status_code == 200
    assert [letter["id"] for letter in (await listed(admin))["letters"]] == [2]
    assert gateway.broker.messages(subjects.EVIDENCE_STREAM) == ()


async def test_only_administrators_may(gateway):
    async with await gateway.client(Role.SUBMITTER) as client:
        assert (await client.get("/api/v1/admin/dlq")).status_code == 403
        assert (await client.post("/api/v1/admin/dlq/1:drop")).status_code == 403
