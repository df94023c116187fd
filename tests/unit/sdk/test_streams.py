"""Server-sent events: parsing, resuming, giving up."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.api import problem

from frenzy.errors import NotFound, Unreachable
from frenzy.exchange import Answer, Call, Lost, Retry
from frenzy.streams import EventParser, Follower, LogEntry, LogGap, log_of

CALL = Call(method="GET", path="/jobs/j/logs")


def encode(event, id_, value):
    return f"id: {id_}\nevent: {event}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def follower(**options):
    return Follower(call=CALL, retry=Retry(), **options)


@given(
    texts=st.lists(st.text(), min_size=1, max_size=5),
    cuts=st.lists(st.integers(min_value=1, max_value=7), min_size=1),
)
def test_any_text_survives_any_chunking(texts, cuts):
    wire = b"".join(encode("log", str(i), {"text": text}) for i, text in enumerate(texts))
    parser, found, position, turn = EventParser(), [], 0, 0
    while position < len(wire):
        size = cuts[turn % len(cuts)]
        found += parser.feed(wire[position : position + size])
        position, turn = position + size, turn + 1
    assert [event.data["text"] for event in found] == texts
    assert [event.id for event in found] == [str(i) for i in range(len(texts))]


def test_comments_and_empty_events_are_nothing():
    assert list(EventParser().feed(b": keep-alive\n\nevent: log\n\n\n")) == []


def test_a_broken_stream_resumes_after_the_last_event():
    reader = follower(clock=lambda: 0.0)
    assert "Last-Event-ID" not in reader.next_call().headers
    assert len(list(reader.feed(encode("log", "7", {}) + b"id: 8\nevent: log\nda"))) == 1
    assert reader.broke(Lost(reason="cut")) > 0
    call = reader.next_call()
    assert call.headers["Last-Event-ID"] == "7"
    assert call.headers["Accept"] == "text/event-stream"
    # What was cut off is not mixed into the new connection's bytes.
    assert [e.id for e in reader.feed(encode("log", "8", {}))] == ["8"]


def test_end_ends_it():
    reader = follower()
    tail = encode("end", "9", {"state": "SUCCEEDED"}) + encode("log", "10", {})
    assert list(reader.feed(tail)) == []
    assert reader.ended
    assert reader.end_data == {"state": "SUCCEEDED"}


def test_an_unknown_job_is_not_asked_for_again():
    response = problem(404, "not_found", "no such job")
    refused = Answer(status=404, headers={}, body=response.content)
    with pytest.raises(NotFound, match="no such job"):
        follower().broke(refused)


def test_patience_ends():
    now = iter([0.0, 60.0, 121.0])
    reader = follower(clock=lambda: next(now), patience_s=120.0)
    reader.broke(Lost(reason="refused"))
    reader.broke(Lost(reason="refused"))
    with pytest.raises(Unreachable):
        reader.broke(Lost(reason="refused"))


def test_an_event_renews_patience():
    now = iter([0.0, 1000.0])
    reader = follower(clock=lambda: next(now), patience_s=120.0)
    reader.broke(Lost(reason="refused"))
    list(reader.feed(encode("log", "1", {})))
    assert reader.broke(Lost(reason="refused")) < 1.0


def test_log_events_become_entries_and_gaps():
    value = {"attempt": 1, "rank": 0, "number": 4, "output": "stdout", "text": "x", "time": "t"}
    (event,) = EventParser().feed(encode("log", "1", {**value, "added_later": 1}))
    assert log_of(event) == LogEntry(**value)
    (gap,) = EventParser().feed(encode("gap", "1", {"first": 2, "last": 3}))
    assert isinstance(log_of(gap), LogGap)
    (other,) = EventParser().feed(encode("news", "1", {}))
    assert log_of(other) is None
