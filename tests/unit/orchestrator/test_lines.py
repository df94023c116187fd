"""Cutting bytes into lines, in whatever pieces they come."""

from hypothesis import given
from hypothesis import strategies as st

from frenzy_orchestrator.core.lines import LINE_LIMIT_BYTES, cut


def texts(data, *, at_end=True):
    return cut(data, at_end=at_end, max_lines=10_000).texts


def test_lines():
    assert texts(b"one\ntwo\n") == ("one", "two")
    assert texts(b"one\r\ntwo") == ("one", "two")
    assert texts(b"\n\n") == ("", "")
    assert texts(b"") == ()


def test_an_unfinished_line_waits_for_its_end():
    assert cut(b"one\ntw", at_end=False, max_lines=9).consumed == 4
    assert cut(b"one\ntw", at_end=True, max_lines=9).texts == ("one", "tw")


def test_progress_bars_show_their_last_state():
    assert texts(b"  1%|\r 50%|\r100%|\ndone\n") == ("100%|", "done")
    assert texts(b"  1%|\r 50%|\r") == (" 50%|",)


def test_bad_bytes_are_replaced():
    assert texts(b"ok \xff\xfe\n") == ("ok \ufffd\ufffd",)


def test_a_huge_line_is_split_between_characters():
    line = "é" * LINE_LIMIT_BYTES
    pieces = texts(f"{line}\n".encode())
    assert "".join(pieces) == line
    assert all(len(piece.encode()) <= LINE_LIMIT_BYTES for piece in pieces)
    assert texts(("x" * 3 * LINE_LIMIT_BYTES).encode(), at_end=False)


def test_a_batch_has_a_limit():
    result = cut(b"\n" * 5000, at_end=False, max_lines=500)
    assert len(result.texts) == result.consumed == 500


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 40))
def test_any_split_gives_the_same_lines(chunks, window):
    data = b"".join(chunks)
    whole = texts(data)
    found, position = [], 0
    while position < len(data):
        end = min(position + LINE_LIMIT_BYTES + window, len(data))
        piece = cut(data[position:end], at_end=end == len(data), max_lines=3)
        assert piece.consumed
        found.extend(piece.texts)
        position += piece.consumed
    assert tuple(found) == whole
