"""A project's share of a gateway: a bucket of tokens, and slots."""

import asyncio

import pytest
from tests.unit.gateway.conftest import SPEC, FakeClock

from frenzy_gateway.throttle import LONGEST_WAIT_S, Throttle
from frenzy_shared.auth import Role
from frenzy_shared.errors import TooManyRequests

JOBS = "/api/v1/jobs"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def throttle(clock):
    return Throttle(clock=clock, rate=10.0, burst=5, slots=2)


def refused(throttle, project="a"):
    with pytest.raises(TooManyRequests) as error:
        throttle.admit(project, (project, b""))
    return error.value.retry_after_s


def admitted(throttle, project="a"):
    """How many pass until the first does not."""
    for number in range(1000):
        try:
            throttle.admit(project, (project, b""))
        except TooManyRequests:
            return number
    return 1000


def test_a_burst_passes_and_then_as_many_as_the_rate_says(throttle, clock):
    assert admitted(throttle) == 5
    clock.now += 1000
    assert admitted(throttle) == 5  # never more than the burst
    clock.now += 200
    assert admitted(throttle) == 2


def test_projects_have_their_own(throttle):
    assert admitted(throttle, "a") == 5
    assert admitted(throttle, "b") == 5


def test_those_who_wait_are_given_turns_one_after_the_other(throttle):
    admitted(throttle)
    first = refused(throttle)
    assert first == pytest.approx(0.2, abs=0.11)
    assert refused(throttle) == pytest.approx(first + 0.1)
    assert refused(throttle) == pytest.approx(first + 0.2)
    for _ in range(1000):
        longest = refused(throttle)
    assert longest == LONGEST_WAIT_S


def test_whoever_comes_when_told_passes(throttle, clock):
    admitted(throttle)
    waits = [refused(throttle) for _ in range(20)]
    started = clock.now
    for wait in waits:
        clock.now = started + round(wait * 1000) + 1
        throttle.admit("a", ("a", b""))


def test_many_jobs_at_once_make_later_ones_wait(throttle, clock):
    throttle.admit("a", ("a", b""))
    throttle.charge("a", 100)
    assert refused(throttle) > 9
    clock.now += 9000
    refused(throttle)
    clock.now += 1000
    throttle.admit("a", ("a", b""))


def test_a_rate_of_0_is_no_limit(clock):
    throttle = Throttle(clock=clock, rate=0.0, burst=1, slots=1)
    throttle.charge("a", 100)
    assert admitted(throttle) == 1000


async def test_slots_are_handed_on_in_order(throttle):
    going, order = asyncio.Event(), []

    async def work(number, project="a"):
        async with throttle.slot(project):
            order.append(number)
            await going.wait()

    tasks = [asyncio.ensure_future(work(number)) for number in range(5)]
    other = asyncio.ensure_future(work(9, "b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == [0, 1, 9]
    going.set()
    await asyncio.gather(*tasks, other)
    assert order == [0, 1, 9, 2, 3, 4]


def test_projects_that_rest_are_forgotten_and_others_are_not(throttle, clock):
    admitted(throttle, "busy")
    for number in range(3000):
        clock.now += 1  # the busy one never rests for long enough
        throttle.admit(f"p{number}", ("p", b""))
        throttle._share("busy").tokens = -1
    assert len(throttle._shares) <= 1025
    assert refused(throttle, "busy") > 0


async def test_too_many_get_429_and_are_told_when_to_come_again(gateway):
    storm = await gateway.client(Role.SUBMITTER, "storm")
    other = await gateway.client(Role.SUBMITTER, "other")
    settings = gateway.service.settings
    answers = [await storm.post(JOBS, json=SPEC) for _ in range(settings.submit_burst + 2)]
    assert [answer.status_code for answer in answers] == [201] * settings.submit_burst + [429] * 2
    problem = answers[-1].json()
    assert (problem["code"], problem["status"]) == ("too_many_requests", 429)
    assert "'storm'" in problem["detail"]
    assert any("array" in hint for hint in problem["suggestions"])
    assert answers[-1].headers["retry-after"] == "1"
    assert (await other.post(JOBS, json=SPEC)).status_code == 201
    gateway.clock.now += 1000
    assert (await storm.post(JOBS, json=SPEC)).status_code == 201


async def test_who_does_not_wait_is_turned_back_at_the_door(gateway, monkeypatch):
    storm = await gateway.client(Role.SUBMITTER, "storm")
    for _ in range(gateway.service.settings.submit_burst + 1):
        last = await storm.post(JOBS, json=SPEC)
    assert last.status_code == 429
    looked, token = [], gateway.store.token

    async def counted(token_id):
        looked.append(token_id)
        return await token(token_id)

    monkeypatch.setattr(gateway.store, "token", counted)
    again = await storm.post(JOBS, json=SPEC)
    assert (again.status_code, again.json()["code"], looked) == (429, "too_many_requests", [])
    assert again.headers["x-content-type-options"] == "nosniff"
    assert (await storm.get(JOBS)).status_code == 200  # only what counts is turned back
    assert (await storm.post(f"{JOBS}?project=other", json=SPEC)).status_code == 403
    gateway.clock.now += 1000
    assert (await storm.post(JOBS, json=SPEC)).status_code == 201
    assert len(looked) == 3


async def test_nobody_is_turned_back_for_another_s_storm(gateway):
    storm = await gateway.client(Role.SUBMITTER, "storm")
    for _ in range(gateway.service.settings.submit_burst + 1):
        await storm.post(JOBS, json=SPEC)
    assert (await gateway.anonymous().post(JOBS, json=SPEC)).status_code == 401
    wrong = gateway.anonymous(Authorization="Bearer frz_no")
    assert (await wrong.post(f"{JOBS}?project=storm", json=SPEC)).status_code == 401


async def test_dry_runs_count_and_looking_does_not(gateway):
    viewer = await gateway.client(Role.SUBMITTER, "p")
    for _ in range(gateway.service.settings.submit_burst):
        await viewer.post("/api/v1/plans", json=SPEC)
    assert (await viewer.post("/api/v1/plans", json=SPEC)).status_code == 429
    assert (await viewer.post("/api/v1/estimates", json={"spec": SPEC})).status_code == 429
    assert (await viewer.post(f"{JOBS}?validate_only=true", json=SPEC)).status_code == 429
    assert (await viewer.get(JOBS)).status_code == 200


async def test_an_array_takes_a_token_for_each_of_its_jobs_once(gateway):
    client = await gateway.client(Role.SUBMITTER, "p")
    spec = {**SPEC, "array": {"count": 120}}
    key = {"Idempotency-Key": "k"}
    assert (await client.post("/api/v1/arrays", json=spec, headers=key)).status_code == 201
    refusal = await client.post(JOBS, json=SPEC)
    assert refusal.status_code == 429
    assert int(refusal.headers["retry-after"]) == 2  # 21 tokens short, at 20 a second
    gateway.clock.now += 2000
    assert (await client.post("/api/v1/arrays", json=spec, headers=key)).status_code == 200
