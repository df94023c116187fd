"""Retrying, error mapping and operations without any transport."""

import httpx
import pytest
from tests.support.api import job_view, problem

from frenzy.errors import (
    FrenzyError,
    NoFeasiblePlan,
    NotFound,
    TimedOut,
    Unavailable,
    Unreachable,
    from_answer,
)
from frenzy.exchange import Answer, Call, Lost, Pause, Retry, exchange
from frenzy.operations import wait

CALL = Call(method="GET", path="/x")


def answer(response):
    return Answer(status=response.status_code, headers=response.headers, body=response.content)


def drive(operation, outcomes):
    """Feed outcomes to the calls of an operation; return (result, pauses)."""
    left, pauses = list(outcomes), []
    try:
        step = next(operation)
        while True:
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                step = operation.send(None)
            else:
                step = operation.send(left.pop(0))
    except StopIteration as done:
        assert left == []
        return done.value, pauses


def test_an_answer_is_returned_after_lost_connections_and_busy_servers():
    outcomes = [Lost(reason="reset"), answer(problem(503, "unavailable", "busy"))]
    outcomes.append(Answer(status=200, headers={}, body=b"{}"))
    result, pauses = drive(exchange(CALL, Retry()), outcomes)
    assert result.status == 200
    assert len(pauses) == 2
    assert 0 < pauses[0] <= 0.4
    assert 0 < pauses[1] <= 0.8


def test_retry_after_is_obeyed():
    busy = Answer(status=503, headers={"retry-after": "3"}, body=b"")
    _, pauses = drive(exchange(CALL, Retry()), [busy, Answer(status=200, headers={}, body=b"")])
    assert pauses == [3.0]


def test_delays_have_jitter_and_a_ceiling():
    retry = Retry(base_s=0.2, cap_s=5.0)
    delays = {retry.delay_s(30) for _ in range(50)}
    assert len(delays) > 10
    assert max(delays) <= 5.0
    assert min(delays) >= 2.5


def test_no_answer_at_all_is_unreachable_and_names_the_reason():
    with pytest.raises(Unreachable, match="connection refused") as caught:
        drive(exchange(CALL, Retry(attempts=2)), [Lost(reason="connection refused")] * 2)
    assert any("frenzy up" in hint for hint in caught.value.suggestions)


def test_a_refusal_is_not_retried():
    refused = answer(problem(422, "no_feasible_plan", "too big", suggestions=("smaller",)))
    with pytest.raises(NoFeasiblePlan, match="too big") as caught:
        drive(exchange(CALL, Retry()), [refused])
    assert caught.value.suggestions == ("smaller",)


def test_every_code_comes_back_as_its_class():
    from frenzy import errors

    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, FrenzyError):
            body = problem(418, kind.code, "text").content
            assert type(from_answer(418, body)) is kind, name


def test_fields_and_trace_are_kept():
    response = problem(
        500, "internal", "bug", errors=({"pointer": "/a", "detail": "b"},), trace_id="t1"
    )
    error = from_answer(500, response.content)
    assert error.problems[0].pointer == "/a"
    assert any("t1" in hint for hint in error.suggestions)


@pytest.mark.parametrize(
    ("status", "kind"), [(502, Unavailable), (404, NotFound), (418, FrenzyError)]
)
def test_a_page_of_a_proxy_is_quoted(status, kind):
    error = from_answer(status, b"<h1>Bad gateway</h1>\nmore")
    assert type(error) is kind
    assert "Bad gateway" in error.message
    assert "more" not in error.message


def test_wait_polls_until_the_job_is_over():
    running = answer(httpx.Response(200, content=job_view(state="RUNNING").encode()))
    over = answer(httpx.Response(200, content=job_view(state="SUCCEEDED").encode()))
    operation = wait(Retry(), "job1", timeout_s=None, clock=lambda: 0.0)
    view, pauses = drive(operation, [running, running, over])
    assert view.state == "SUCCEEDED"
    assert pauses[0] < pauses[1]


def test_wait_survives_a_server_that_is_away_for_a_while_but_not_for_ever():
    over = answer(httpx.Response(200, content=job_view(state="FAILED").encode()))
    gone = [Lost(reason="refused")]
    operation = wait(Retry(attempts=1), "job1", timeout_s=None, clock=lambda: 0.0)
    view, _ = drive(operation, [*gone, *gone, over])
    assert view.state == "FAILED"
    times = iter([0.0, 1.0, 10.0, 200.0, 400.0])
    operation = wait(Retry(attempts=1), "job1", timeout_s=None, clock=lambda: next(times))
    with pytest.raises(Unreachable):
        drive(operation, gone * 3)


def test_wait_gives_up_after_its_own_limit():
    running = answer(httpx.Response(200, content=job_view(state="RUNNING").encode()))
    times = iter([0.0, 0.0, 0.0, 6.0, 6.0, 6.0])
    operation = wait(Retry(), "job1", timeout_s=5.0, clock=lambda: next(times))
    with pytest.raises(TimedOut, match="job1"):
        drive(operation, [running, running, running])
