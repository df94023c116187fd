"""Several gateways stand for one server: clients go on to the next when one fails."""

import random

import httpx
import pytest
from tests.support.api import SPEC, job_view, log, ok, problem, sse

from frenzy import AsyncClient, Client, config
from frenzy.exchange import Answer, Retry
from frenzy.streams import Call, Follower
from frenzy_shared.errors import Misconfigured, TooManyRequests

URLS = "http://a:1, http://b:2/"
FAST = Retry(attempts=3, base_s=0.001, cap_s=0.001)


class Cluster:
    """Answers as the gateway does that was asked, and says which were."""

    def __init__(self, **answers):
        self.answers, self.asked, self.keys = answers, [], []

    def __call__(self, request):
        self.asked.append(request.url.host)
        self.keys.append(request.headers.get("idempotency-key"))
        answer = self.answers[request.url.host]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture(autouse=True)
def begin_with_the_first(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(random, "randrange", lambda _: 0)


def client(cluster, retry=FAST):
    return Client(URLS, "t", retry=retry, transport=httpx.MockTransport(cluster))


@pytest.mark.parametrize(
    "failure", [httpx.ConnectError("gone"), httpx.ReadError("cut"), problem(503, "unavailable", "")]
)
def test_a_submission_goes_on_at_the_next_gateway_with_its_key(failure):
    cluster = Cluster(a=failure, b=ok(job_view("job1"), 201))
    with client(cluster) as sdk:
        assert sdk.submit({**SPEC, "data": "node:/text"}).id == "job1"
        assert cluster.asked == ["a", "b"]
        assert cluster.keys[0] == cluster.keys[1] is not None
        sdk.job("job1")
    assert cluster.asked == ["a", "b", "b"]  # and stays there


async def test_an_asynchronous_client_does_the_same():
    cluster = Cluster(a=httpx.ConnectError("gone"), b=ok(job_view("job1"), 201))
    transport = httpx.MockTransport(cluster)
    async with AsyncClient(URLS, "t", retry=FAST, transport=transport) as sdk:
        assert (await sdk.submit({**SPEC, "data": "node:/text"})).id == "job1"
    assert cluster.asked == ["a", "b"]


def test_a_stream_goes_on_at_the_next_gateway():
    cluster = Cluster(a=sse(log(1, "one")), b=sse(log(1, "one"), log(2, "two"), end="SUCCEEDED"))
    with client(Cluster(a=ok(job_view("job1")), b=ok(job_view("job1")))) as sdk:
        job = sdk.job("job1")
        sdk._http._transport = httpx.MockTransport(cluster)
        assert list(job.logs(follow=True))[-1] == "two"
    assert cluster.asked == ["a", "b"]


def test_a_gateway_that_is_only_busy_is_not_left():
    cluster = Cluster(a=problem(429, "too_many_requests", "slowly"), b=ok(job_view("job1")))
    with client(cluster) as sdk, pytest.raises(TooManyRequests, match="slowly"):
        sdk.job("job1")
    assert cluster.asked == ["a"] * 3


def test_addresses_are_told_apart_and_checked():
    assert config.resolve(URLS).urls == ("http://a:1", "http://b:2")
    assert config.resolve(URLS).url == "http://a:1"
    with pytest.raises(Misconfigured, match="'' is not a URL"):
        config.resolve("http://a:1,")


def test_a_stored_token_is_for_all_gateways_of_its_server_only():
    config.save(config.user_file(), "http://a:1,http://b:2", "secret")
    assert config.resolve().token == "secret"
    assert config.resolve("http://b:2").token == "secret"
    assert config.resolve("http://b:2,http://evil").token == ""


def test_a_follower_waits_as_long_as_it_is_asked_to():
    busy = Answer(status=429, headers={"retry-after": "7"}, body=b"")
    follower = Follower(call=Call(method="GET", path="/x"), retry=FAST, clock=lambda: 0.0)
    assert follower.broke(busy) == 7.0
