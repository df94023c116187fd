"""Logs and events: whole, followed, resumed, ended."""

import asyncio
import json

import pytest

from frenzy_shared.domain.job import JobState

SSE = {"Accept": "text/event-stream"}


def frames(response):
    """Return (event, data, id) of each event, comments left out."""
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    out = []
    for block in response.text.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":")
        )
        if fields:
            out.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return out


def numbers(response, kind="log"):
    return [data["number"] for event, data, _ in frames(response) if event == kind]


@pytest.fixture
def logs(job):
    return f"/api/v1/jobs/{job}/logs"


@pytest.fixture
def events(job):
    return f"/api/v1/jobs/{job}/events"


async def test_a_job_without_logs_has_an_empty_log(admin, logs):
    response = await admin.get(logs)
    assert (response.status_code, response.text) == (200, "")
    assert response.headers["content-type"].startswith("text/plain")


async def test_a_whole_log_is_ordered_and_without_repeats(gateway, admin, job, logs):
    await gateway.ship(job, range(1, 4))
    await gateway.ship(job, range(1, 3), rank=1)
    await gateway.ship(job, range(3, 6))  # 3 again: an agent that was restarted
    await gateway.ship("otherjob", range(1, 3))
    assert (await admin.get(f"{logs}?rank=0")).text == "line 1\nline 2\nline 3\nline 4\nline 5\n"
    assert (
        await admin.get(logs)
    ).text == "[0] line 1\n[1] line 1\n[0] line 2\n[1] line 2\n[0] line 3\n[0] line 4\n[0] line 5\n"
    assert (await admin.get(f"{logs}?rank=1&attempt=1")).text == "line 1\nline 2\n"
    assert (await admin.get(f"{logs}?rank=0&tail=2")).text == "line 4\nline 5\n"
    assert (await admin.get(f"{logs}?attempt=2")).text == ""
    assert (await admin.get(f"{logs}?rank=7")).text == ""


async def test_dangerous_text_is_made_safe(gateway, admin, job, logs):
    await gateway.ship(job, [1], text="\x1b[2J\x1b[31m</script>\x07\ttab\x00")
    assert (await admin.get(f"{logs}?rank=0")).text == "</script>\ttab\n"
    await gateway.move(job, JobState.FAILED)
    assert frames(await admin.get(logs, headers=SSE))[0][1]["text"] == "</script>\ttab"


@pytest.mark.parametrize(
    "query", ["rank=-1", "rank=../../x", "attempt=0", "tail=-1", "tail=1e9", "tail=100001"]
)
async def test_wrong_parameters_are_named(admin, logs, problem, query):
    body = problem(await admin.get(f"{logs}?{query}"), 400, "bad_request")
    assert body["errors"][0]["pointer"] == f"/{query.split('=')[0]}"


async def test_a_log_that_is_too_long_for_one_answer_says_how_to_get_it(
    gateway, admin, job, logs, problem
):
    object.__setattr__(
        gateway.service,
        "settings",
        gateway.service.settings.model_copy(update={"max_log_bytes": 8192}),
    )
    await gateway.ship(job, range(1, 200))
    body = problem(await admin.get(logs), 413, "payload_too_large")
    assert "tail" in body["suggestions"][0]
    assert (await admin.get(f"{logs}?rank=0&tail=1")).text == "line 199\n"


async def test_a_bus_that_is_down_is_an_error_not_an_empty_log(
    gateway, admin, logs, events, problem
):
    gateway.broker.available = False
    for path in (logs, events):
        for headers in ({}, SSE):
            problem(await admin.get(path, headers=headers), 503, "unavailable")


async def test_following_a_finished_job_gives_everything_and_the_end(gateway, admin, job, logs):
    await gateway.ship(job, range(1, 3))
    await gateway.ship(job, range(1, 2), rank=1)
    await gateway.move(job, JobState.SUCCEEDED)
    response = await admin.get(logs, headers=SSE)
    assert response.headers["cache-control"] == "no-store"
    found = frames(response)
    assert [(event, data.get("rank"), data.get("number")) for event, data, _ in found] == [
        ("log", 0, 1),
        ("log", 0, 2),
        ("log", 1, 1),
        ("end", None, None),
    ]
    assert found[0][1] == {
        "attempt": 1,
        "rank": 0,
        "number": 1,
        "output": "stdout",
        "text": "line 1",
        "time": "2023-11-14T22:13:20.001000Z",
    }
    assert found[-1][1] == {"state": "SUCCEEDED"}
    assert len({identity for _, _, identity in found[:-1]}) == 3


async def test_a_follower_sees_lines_as_they_come_until_the_job_ends(gateway, admin, job, logs):
    await gateway.move(job, JobState.RUNNING)
    following = asyncio.ensure_future(admin.get(logs, headers=SSE))
    for batch in (range(1, 3), range(3, 5)):
        await asyncio.sleep(0.05)
        await gateway.ship(job, batch)
    await gateway.move(job, JobState.SUCCEEDED)
    response = await following
    assert numbers(response) == [1, 2, 3, 4]
    assert frames(response)[-1][:2] == ("end", {"state": "SUCCEEDED"})


async def test_resuming_anywhere_gives_exactly_the_rest(gateway, admin, job, logs):
    await gateway.ship(job, range(1, 4))
    await gateway.ship("otherjob", range(1, 4))
    await gateway.ship(job, range(4, 6))
    await gateway.move(job, JobState.SUCCEEDED)
    whole = frames(await admin.get(logs, headers=SSE))
    for position, (_, _, identity) in enumerate(whole[:-1], start=1):
        rest = frames(await admin.get(logs, headers={**SSE, "Last-Event-ID": identity}))
        assert rest == whole[position:]


async def test_missing_numbers_are_told(gateway, admin, job, logs):
    await gateway.ship(job, [1, 2])
    await gateway.ship(job, [5])
    await gateway.move(job, JobState.FAILED)
    found = frames(await admin.get(logs, headers=SSE))
    assert [event for event, _, _ in found] == ["log", "log", "gap", "log", "end"]
    assert found[2][1] == {"attempt": 1, "rank": 0, "first": 3, "last": 4}
    assert (
        await admin.get(f"{logs}?rank=0")
    ).text == "line 1\nline 2\n[lines 3-4 are missing]\nline 5\n"


async def test_following_with_a_tail_starts_near_the_end(gateway, admin, job, logs):
    await gateway.ship(job, range(1, 100))
    await gateway.move(job, JobState.SUCCEEDED)
    assert numbers(await admin.get(f"{logs}?tail=2", headers=SSE)) == [98, 99]


@pytest.mark.parametrize("identity", ["x", "1", "-", "1-x", "1-2-3", "\u0661-1".encode(), "-1-1"])
async def test_ids_of_other_origin_are_refused(admin, logs, problem, identity):
    problem(await admin.get(logs, headers={**SSE, "Last-Event-ID": identity}), 400, "bad_request")


async def test_events_are_cloudevents_oldest_first(gateway, admin, job, events):
    await gateway.move(job, JobState.QUEUED)
    await gateway.relay()
    found = (await admin.get(events)).json()
    assert [event["type"] for event in found] == [
        "dev.frenzy.job.submitted.v1",
        "dev.frenzy.job.moved.v1",
    ]
    assert found[0]["specversion"] == "1.0"
    assert found[0]["data"]["record"]["id"] == job


async def test_following_events_ends_with_the_last_transition(gateway, admin, job, events):
    await gateway.relay()
    following = asyncio.ensure_future(admin.get(events, headers=SSE))
    await asyncio.sleep(0.1)
    await gateway.move(job, JobState.CANCELLED)
    await asyncio.sleep(0.1)
    assert not following.done()  # the last event is not published yet
    await gateway.relay()
    found = frames(await following)
    assert [(event, identity) for event, _, identity in found] == [
        ("event", "1"),
        ("event", "2"),
        ("end", ""),
    ]
    assert found[-1][1] == {"state": "CANCELLED"}
    for position, (_, _, identity) in enumerate(found[:-1], start=1):
        rest = frames(await admin.get(events, headers={**SSE, "Last-Event-ID": identity}))
        assert rest == found[position:]


async def test_a_client_beyond_the_stored_events_is_told_the_end(gateway, admin, job, events):
    await gateway.move(job, JobState.FAILED)
    await gateway.relay()
    found = frames(await admin.get(events, headers={**SSE, "Last-Event-ID": "900"}))
    assert [data for _, data, _ in found] == [{"state": "FAILED"}]


@pytest.mark.parametrize("identity", ["x", "-1", "1.5", "1-2"])
async def test_event_ids_of_other_origin_are_refused(admin, events, problem, identity):
    problem(await admin.get(events, headers={**SSE, "Last-Event-ID": identity}), 400, "bad_request")


async def test_what_is_no_event_is_skipped(gateway, admin, job, events):
    await gateway.bus.publish(f"frenzy.v1.evt.default.job.placed.{job}", b"?", message_id="bad")
    await gateway.relay()
    assert len((await admin.get(events)).json()) == 1


async def test_an_idle_stream_is_kept_alive(gateway, admin, job, logs):
    following = asyncio.ensure_future(admin.get(logs, headers=SSE))
    await asyncio.sleep(0.1)
    gateway.clock.now += 15_000
    await asyncio.sleep(0.1)
    await gateway.move(job, JobState.CANCELLED)
    response = await following
    assert response.text.count(": keep-alive") == 1


async def test_stopping_the_gateway_ends_followers_without_an_end_event(
    gateway, admin, logs, events
):
    following = [asyncio.ensure_future(admin.get(path, headers=SSE)) for path in (logs, events)]
    await asyncio.sleep(0.05)
    gateway.service.stopping.set()
    for response in await asyncio.wait_for(asyncio.gather(*following), 2):
        assert frames(response) == []


async def test_a_follower_survives_an_outage_of_store_and_bus(gateway, admin, job, logs):
    following = asyncio.ensure_future(admin.get(logs, headers=SSE))
    await asyncio.sleep(0.05)
    gateway.store.down, gateway.broker.available = True, False
    await asyncio.sleep(0.1)
    gateway.store.down, gateway.broker.available = False, True
    await gateway.ship(job, range(1, 3))
    await gateway.move(job, JobState.SUCCEEDED)
    assert numbers(await following) == [1, 2]


async def test_there_are_only_so_many_followers(gateway, admin, job, logs, events, problem):
    gateway.api.state.followers.limit = 1
    following = asyncio.ensure_future(admin.get(logs, headers=SSE))
    await asyncio.sleep(0.05)
    for path in (logs, events):
        response = await admin.get(path, headers=SSE)
        problem(response, 503, "unavailable")
        assert "retry-after" in response.headers
        assert (await admin.get(path)).status_code == 200  # whole answers are not limited
    await gateway.move(job, JobState.CANCELLED)
    await following
    assert frames(await admin.get(logs, headers=SSE))[-1][0] == "end"
