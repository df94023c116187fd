import time

import pytest

from frenzy_gateway.jsonbody import MAX_DEPTH, parse_json
from frenzy_shared.errors import BadRequest, InvalidSpec


def test_json_is_read():
    assert parse_json(b'{"a": [1, 2.5, "\xc3\xa9", null, true]}') == {
        "a": [1, 2.5, "é", None, True]
    }


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"a": 1,', "line 1 column 9"),
        (b'{\n "a": tru}', "line 2 column 7"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8: byte 0"),
        (b'{"a": "\xff"}', "byte 7"),
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b'{"x": {"b": 1, "c": 0, "b": 2}}', "'b' twice"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
        (b"[" * 10_000, f"deeper than {MAX_DEPTH}"),
        (b'{"a":' * 10_000, f"deeper than {MAX_DEPTH}"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
    ],
)
def test_wrong_bodies_say_where(body, text):
    with pytest.raises(BadRequest, match=text):
        parse_json(body)


@pytest.mark.parametrize(
    ("body", "pointer", "text"),
    [
        (b'{"learning_rate": NaN}', "/learning_rate", "finite"),
        (b'{"a": [1, -Infinity]}', "/a/1", "finite"),
        (b'{"a": {"b/c": 1e999}}', "/a/b~1c", "finite"),
        (b'{"hidden_size": 9223372036854775808}', "/hidden_size", "2\\^53"),
        (b'{"name": "\\ud800"}', "/name", "surrogate"),
    ],
)
def test_values_that_json_cannot_carry_name_their_field(body, pointer, text):
    with pytest.raises(InvalidSpec, match=text) as caught:
        parse_json(body)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


def test_the_deepest_allowed_nesting_and_brackets_in_strings_pass():
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert parse_json(b'{"a": "' + b"[{" * 1000 + b'\\"["}')


@pytest.mark.parametrize(
    "body",
    [
        b'"' + b'\\"' * 400_000,
        b'"' * 900_000,
        b"[" + b'"a",' * 200_000,
        b'{"a":"' + b"\\" * 900_000,
        b"{" + b",".join(b'"%d":1' % n for n in range(90_000)) + b',"89999":1}',
    ],
)
def test_hostile_bodies_are_refused_in_linear_time(body):
    start = time.process_time()
    with pytest.raises(BadRequest):
        parse_json(body)
    assert time.process_time() - start < 2
