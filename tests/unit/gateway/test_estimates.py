"""POST /estimates: MARP's own answer over the bus, its errors, and its silence."""

import pytest
from tests.support.planning import emulated

from frenzy_marp.core.learning import Experience
from frenzy_marp.estimates import estimate_view
from frenzy_shared.auth import Role
from frenzy_shared.errors import FrenzyError
from frenzy_shared.messages import subjects
from frenzy_shared.messages.estimate import (
    DriftList,
    DriftView,
    EstimateReply,
    EstimateRequest,
    EstimateView,
)

PATH = "/api/v1/estimates"
BODY = {
    "spec": {"model": "gpt2", "data": "node:/data/text", "global_batch_size": 8},
    "gpu": "emulated-a",
    "overrides": {"zero_stage": 3, "gpus": 2, "micro_batch_size": 1},
}


@pytest.fixture
async def asked(gateway):
    """Answer as MARP does; the requests that came."""
    requests = []

    async def answer(message):
        requests.append(EstimateRequest.decode(message.payload))
        try:
            view = estimate_view(requests[-1], (emulated("a", 4096),), Experience())
        except FrenzyError as error:
            return EstimateReply(error_code=error.code, error=error.message).encode()
        return EstimateReply(estimate=view).encode()

    await gateway.bus.serve(subjects.MARP_ESTIMATE, answer, queue="marp")
    return requests


async def test_an_estimate_is_the_one_that_marp_makes(admin, asked):
    response = await admin.post(PATH, json=BODY)
    assert response.status_code == 200
    found = EstimateView.decode(response.content)
    assert (found.plan.zero_stage, found.plan.data, found.fits) == (3, 2, True)
    assert "resources.zero_stage" in found.pinned
    assert asked[0].overrides.gpus == 2


@pytest.mark.parametrize(
    ("change", "pointer", "text"),
    [
        ({"overrides": {"zero": 3}}, "/overrides/zero", "did you mean 'zero_stage'"),
        ({"overrides": {"zero_stage": 4}}, "/overrides/zero_stage", "less than or equal to 3"),
        ({"overrides": {"gpus": "2"}}, "/overrides/gpus", "whole number"),
        ({"overrides": {"precision": "int8"}}, "/overrides/precision", "bf16"),
        ({"spec": {"model": "gpt2", "global_batch_size": 8}}, "/spec", "model and data"),
        ({"spec": {**BODY["spec"], "modle": 1}}, "/spec/modle", "did you mean 'model'"),
        ({"graphics": "A100"}, "/graphics", "unknown key"),
        ({"gpu": 5}, "/gpu", "text"),
    ],
)
async def test_wrong_fields_are_named(admin, asked, change, pointer, text):
    response = await admin.post(PATH, json={**BODY, **change})
    assert response.status_code == 422
    problems = {error["pointer"]: error["detail"] for error in response.json()["errors"]}
    assert text in problems[pointer]
    assert asked == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"gpu": "A"}, "several GPUs"),
        ({"overrides": {"gpus": 3}}, "split evenly"),
        ({"overrides": {"sequence_length": 2048}}, "learned positions"),
    ],
)
async def test_what_marp_refuses_is_the_callers_error(admin, asked, change, text):
    response = await admin.post(PATH, json={**BODY, **change})
    assert response.status_code == 422
    assert text in response.json()["detail"]


async def test_a_silent_marp_is_said(admin):
    response = await admin.post(PATH, json=BODY)
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")


async def test_a_viewer_may_ask_and_a_stranger_may_not(gateway, asked):
    assert (await (await gateway.client(Role.VIEWER)).post(PATH, json=BODY)).status_code == 200
    assert (await gateway.anonymous().post(PATH, json=BODY)).status_code == 401


async def test_what_drifts_is_told_as_marp_knows_it(gateway, admin, problem):
    problem(await admin.get("/api/v1/drifts"), 503, "unavailable")
    drift = DriftView(group="script/a100", runs=20, outside=9, ratio=1.3)

    async def answer(_):
        return DriftList(drifts=(drift,)).encode()

    await gateway.bus.serve(subjects.MARP_DRIFTS, answer, queue="marp")
    assert DriftList.decode((await admin.get("/api/v1/drifts")).content).drifts == (drift,)
