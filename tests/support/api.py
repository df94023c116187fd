"""A scripted HTTP API for SDK and CLI tests: answers by method and path, requests on record."""

import json
from datetime import UTC, datetime

import httpx
from tests.support.plans import resource_plan

from frenzy_shared.domain.plan import (
    PlanSet,
    RefusedPlan,
)
from frenzy_shared.messages.http import (
    DeviceAddress,
    DeviceView,
    JobView,
    NodeList,
    NodeView,
    PlanResult,
    Problem,
)
from frenzy_shared.units import MIB

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DIGEST = "sha256:" + "a" * 64
SPEC = {"model": "gpt2-tiny", "data": f"blob:{DIGEST}", "global_batch_size": 8}


class ScriptedApi:
    """Answers with what ``on`` was given, in order; the last answer is repeated.

    An answer is an ``httpx.Response`` or an exception to raise.
    """

    def __init__(self):
        self.requests = []
        self._answers = {}

    def on(self, method, path, *answers):
        return self.at_root(method, f"/api/v1{path}", *answers)

    def at_root(self, method, path, *answers):
        """The same for paths beside the API: health, say."""
        self._answers[method, path] = list(answers)
        return self

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        answers = self._answers.get((request.method, request.url.path))
        if answers is None:
            return problem(404, "not_found", f"no answer for {request.method} {request.url.path}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, BaseException):
            answer.request = request
            raise answer
        # A response can be read once; give each request its own.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    async def asynchronous(self, request):
        await request.aread()
        return self(request)

    def sent(self, method, path):
        wanted = f"/api/v1{path}"
        return [r for r in self.requests if (r.method, r.url.path) == (method, wanted)]


def ok(message, status=200):
    return httpx.Response(status, content=message.encode())


def data(value, status=200):
    return httpx.Response(status, content=json.dumps(value).encode())


def problem(status, code, detail, **more):
    body = Problem(type="about:blank", title=code, status=status, detail=detail, code=code, **more)
    return httpx.Response(
        status, content=body.encode(), headers={"content-type": "application/problem+json"}
    )


def sse(*events, end=None):
    """A stream: events as (event, id, data); ``end`` is the state of the final event."""
    text = ": connected\n\n"
    for event, id_, value in events:
        text += f"id: {id_}\nevent: {event}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n"
    if end is not None:
        text += f'event: end\ndata: {{"state": "{end}"}}\n\n'
    return httpx.Response(200, content=text.encode(), headers={"content-type": "text/event-stream"})


def job_view(id_="job1", state="QUEUED", **more):
    fields = {
        "id": id_,
        "project": "default",
        "name": "small",
        "state": state,
        "version": 3,
        "attempt": 1,
        "priority": 50,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return JobView(**{**fields, **more})


def plan(kind="emulated-a100-40", expected=100 * MIB, devices=1):
    return resource_plan(
        kind=kind,
        devices=devices,
        expected=expected,
        zero_stage=2,
        micro_batch_size=4,
        gradient_accumulation_steps=2,
        step_s=0.5,
        tokens_per_s=2048.0,
        total_s=30.0,
        device_hours=0.01,
        why="the smallest card that fits",
    )


def plans(*found, refused=(), message=""):
    return PlanResult(
        plans=PlanSet(plans=found, refused=tuple(refused), kinds_digest="d", message=message)
    )


def refused_plan(pin="resources.kinds"):
    return RefusedPlan(
        kind="emulated-rtx2080ti",
        device_count=1,
        option="1 x emulated-rtx2080ti, ZeRO-3",
        reason="needs 2.1 GiB, the device has 96.0 MiB",
        pin=pin,
        shortfall_bytes=2000 * MIB,
    )


def node_list():
    device = DeviceView(
        id="0", kind="emulated-a100-40", memory_bytes=256 * MIB, emulated=True, owner="job1"
    )
    node = NodeView(
        id="node-b", state="UP", epoch=1, address="127.0.1.2", updated_at=NOW, devices=(device,)
    )
    return NodeList(nodes=(node,))


def held_devices():
    return {
        "kind": "emulated-a100-40",
        "devices": (DeviceAddress(node="node-b", device="0"),),
    }


def log(number, text, attempt=1):
    """One line of rank 0 as an event stream sends it."""
    value = {"attempt": attempt, "rank": 0, "number": number, "output": "stdout"}
    return ("log", str(number), {**value, "text": text, "time": "t"})
