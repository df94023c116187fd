from hypothesis import given
from hypothesis import strategies as st

from frenzy_gateway.feed import LogCursor, LogFeed
from frenzy_gateway.loglines import Gap, Line, LineTable, LogFilter, clean, render
from frenzy_shared.bus.port import Message
from frenzy_shared.messages.v1 import LogBatch, LogLine


def line(number, rank=0, attempt=1, time_ms=0, text=None):
    return Line(
        attempt=attempt,
        rank=rank,
        line=LogLine(number=number, time_ms=time_ms, output="stdout", text=text or f"l{number}"),
    )


def message(sequence, numbers, rank=0):
    lines = tuple(line(n, rank).line for n in numbers)
    batch = LogBatch(job="j", attempt=1, rank=rank, node="n", lines=lines)
    return Message(subject="s", payload=batch.encode(), sequence=sequence)


def feed(after=None, tail=None, history_end=0, wanted=None):
    return LogFeed(wanted=wanted or LogFilter(), after=after, tail=tail, history_end=history_end)


def short(events):
    import json

    out = []
    for event in events:
        data = json.loads(event.data)
        out.append(data["number"] if event.event == "log" else (event.event, *data.values()))
    return out


@given(st.permutations(list(range(1, 12))), st.lists(st.integers(1, 11), max_size=5))
def test_a_table_gives_every_line_once_in_order_whatever_came(order, repeated):
    table = LineTable(tail=None)
    for number in [*order, *repeated]:
        table.add(line(number, time_ms=-number))
    assert [item.line.number for item in table.merged()] == list(range(1, 12))


def test_ranks_are_merged_by_time_but_never_reordered_inside():
    table = LineTable(tail=None)
    for item in (
        line(1, 0, time_ms=10),
        line(2, 0, time_ms=5),
        line(1, 1, time_ms=7),
        line(2, 1, time_ms=12),
    ):
        table.add(item)
    assert list(render(table.merged(), name_ranks=True)) == [
        "[1] l1\n",
        "[0] l1\n",
        "[0] l2\n",
        "[1] l2\n",
    ]


def test_attempts_follow_each_other():
    table = LineTable(tail=None)
    table.add(line(1, attempt=2, time_ms=1))
    table.add(line(1, attempt=1, time_ms=9))
    assert [item.attempt for item in table.merged()] == [1, 2]
    assert table.attempts == 2
    shown = render(table.merged(), name_ranks=True, name_attempts=True)
    assert list(shown) == ["[1.0] l1\n", "[2.0] l1\n"]


def test_missing_lines_are_named():
    table = LineTable(tail=None)
    for number in (2, 3, 7):
        table.add(line(number))
    items = list(table.merged())
    assert [item for item in items if isinstance(item, Gap)] == [
        Gap(attempt=1, rank=0, first=1, last=1),
        Gap(attempt=1, rank=0, first=4, last=6),
    ]
    assert list(render(items, name_ranks=False))[0] == "[lines 1-1 are missing]\n"


def test_a_tail_keeps_the_last_lines_of_each_rank_in_bounded_memory():
    table = LineTable(tail=3)
    for number in range(1, 5001):
        table.add(line(number))
        table.add(line(number, rank=1))
        assert table.size_bytes < 2 * 100 * 80
    assert [(item.rank, item.line.number) for item in table.merged()] == [
        (0, 4998),
        (0, 4999),
        (0, 5000),
        (1, 4998),
        (1, 4999),
        (1, 5000),
    ]


def test_tail_zero_is_nothing():
    table = LineTable(tail=0)
    table.add(line(1))
    assert list(table.merged()) == []


def test_terminal_sequences_and_control_characters_are_removed():
    assert clean("\x1b[31mred\x1b[0m\x07 a\tb\x00\x7f\x9b \x1b]0;title\x07é") == "red a\tb é"


def test_a_feed_tells_lines_once_and_where_numbers_are_missing():
    it = feed()
    told = short(
        [*it.take(message(1, [1, 2])), *it.take(message(2, [2, 3])), *it.take(message(3, [6]))]
    )
    assert told == [1, 2, 3, ("gap", 1, 0, 4, 5), 6]


def test_a_first_line_other_than_one_is_a_gap():
    assert short(feed().take(message(9, [3]))) == [("gap", 1, 0, 1, 2), 3]


def test_resuming_inside_a_batch_tells_only_the_rest():
    it = feed(after=LogCursor(sequence=4, index=2))
    assert it.start == 3
    told = short(
        [*it.take(message(4, [10, 11, 12])), *it.take(message(5, [13])), *it.take(message(6, [15]))]
    )
    assert told == [12, 13, ("gap", 1, 0, 14, 14), 15]


def test_resuming_after_a_batch_that_is_gone_says_so():
    it = feed(after=LogCursor(sequence=4, index=2))
    assert short(it.take(message(7, [30]))) == [("gap", "4-2"), 30]


def test_a_feed_with_a_tail_holds_the_history_back():
    it = feed(tail=2, history_end=3)
    assert [
        *it.take(message(1, [1, 2])),
        *it.take(message(2, [1], rank=1)),
        *it.take(message(3, [3, 4])),
    ] == []
    assert short(it.take(message(4, [5]))) == [1, 3, 4, 5]


def test_a_tail_is_told_when_nothing_more_comes():
    it = feed(tail=1, history_end=9)
    assert short(it.take(message(1, [1, 2]))) == []
    assert short(it.flush()) == [2]


def test_a_message_that_is_no_batch_is_skipped():
    assert list(feed().take(Message(subject="s", payload=b"?", sequence=1))) == []


def test_only_the_wanted_rank_is_told():
    it = feed(wanted=LogFilter(rank=1))
    assert short([*it.take(message(1, [1])), *it.take(message(2, [1, 2], rank=1))]) == [1, 2]
