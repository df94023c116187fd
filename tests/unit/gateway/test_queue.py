"""The queue and recordings over HTTP: the scheduler's words, passed on to whom they concern."""

import base64
import gzip

from frenzy_shared.auth import Role
from frenzy_shared.messages import subjects
from frenzy_shared.messages.v1 import (
    ExplainReply,
    QueueReply,
    QueueRequest,
    RecordReply,
    RecordRequest,
)

BAND = {"p50": "2026-12-01T10:05:00Z", "p90": None}
ETA = {"start": BAND, "end": BAND}
ENTRY = {
    "position": 3,
    "job": "j1",
    "name": "train",
    "project": "p",
    "priority": 50,
    "reason": "WaitingForCapacity",
    "message": "needs 2 x a100-40; 1 is free",
    "submitted_at": "2026-12-01T09:00:00Z",
    "eta": ETA,
}


async def test_the_queue_is_passed_on_within_the_callers_scope(gateway, admin):
    asked = []

    async def answer(message):
        asked.append(QueueRequest.decode(message.payload))
        basis = {"futures": 4, "reaches": None}
        return QueueReply(policy="has", total=9, entries=(ENTRY,), basis=basis).encode()

    await gateway.bus.serve(subjects.SCHEDULER_QUEUE, answer)
    body = (await admin.get("/api/v1/queue", params={"limit": 5})).json()
    assert (body["policy"], body["total"], body["basis"]["futures"]) == ("has", 9, 4)
    assert body["entries"] == [ENTRY]
    async with await gateway.client(Role.VIEWER, project="p") as viewer:
        assert (await viewer.get("/api/v1/queue")).status_code == 200
        assert (await viewer.get("/api/v1/queue", params={"project": "q"})).status_code == 403
    assert [(one.project, one.limit) for one in asked] == [(None, 5), ("p", 100)]


async def test_a_silent_scheduler_and_impossible_limits_are_errors(gateway, admin, problem):
    found = problem(await admin.get("/api/v1/queue"), 503, "unavailable")
    assert found["detail"] == "the scheduler does not answer"
    problem(await admin.get("/api/v1/queue", params={"limit": 0}), 400, "bad_request")
    problem(await admin.post("/api/v1/admin/record"), 503, "unavailable")


async def test_an_explanation_carries_what_would_help_and_when(gateway, admin, job):
    way = {"what": "time", "text": "2 x a100 free in ~14 min", "plan": "p1", "after_s": 840.0}

    async def answer(_message):
        return ExplainReply(
            state="QUEUED", would_start=(way,), eta=ETA, basis={"futures": 16}
        ).encode()

    await gateway.bus.serve(subjects.SCHEDULER_EXPLAIN, answer)
    body = (await admin.get(f"/api/v1/jobs/{job}/explain")).json()
    assert (body["would_start"], body["eta"]) == ([way], ETA)


async def test_a_recording_is_unpacked_and_for_administrators_only(gateway, admin, problem):
    asked = []

    async def answer(message):
        asked.append(RecordRequest.decode(message.payload).cycles)
        if asked[-1] == 9:
            return RecordReply(error="too much for one message").encode()
        packed = base64.b64encode(gzip.compress(b'{"recording": 1}'))
        return RecordReply(recording=packed.decode()).encode()

    await gateway.bus.serve(subjects.SCHEDULER_RECORD, answer)
    found = await admin.post("/api/v1/admin/record", params={"cycles": 2})
    assert (found.headers["content-type"], found.json()) == ("application/json", {"recording": 1})
    refused = await admin.post("/api/v1/admin/record", params={"cycles": 9})
    assert problem(refused, 503, "unavailable")["detail"] == "too much for one message"
    async with await gateway.client(Role.SUBMITTER) as submitter:
        assert (await submitter.post("/api/v1/admin/record")).status_code == 403
    assert asked == [2, 9]
