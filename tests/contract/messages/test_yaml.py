"""Job files: plain data, or the line that is wrong."""

import math
from typing import Any

import pytest

from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.yaml import MAX_CHARACTERS, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("Norway", "Norway"),
        ("true", True), ("False", False), ("~", None), ("null", None), ("", None),
        ("12", 12), ("-3", -3), ("0x10", 16), ("0o17", 15), ("08", 8), ("1_000", "1_000"),
        ("1.5", 1.5), ("3e-4", 3e-4), ("1E5", 1e5), (".5", 0.5), ("5.", 5.0), ("-.inf", -math.inf),
        ("2024-01-01", "2024-01-01"), ("1:30", "1:30"), ("24GB..80GB", "24GB..80GB"),
        ("'12'", "12"), ('"true"', "true"), ("[1, a, []]", [1, "a", []]), ("{b: {c: 1}}", {"b": {"c": 1}}),
        ("|\n  two\n  lines\n", "two\nlines\n"), ("é", "é"),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    loaded = load_yaml(f"a: {text}", "job.yaml")["a"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_not_a_number_is_a_number_for_the_specification_to_refuse() -> None:
    assert math.isnan(load_yaml("a: .nan", "x")["a"])


def test_json_is_yaml() -> None:
    assert load_yaml('{"a": [1, 2.5, null, "x\\n"]}', "x") == {"a": [1, 2.5, None, "x\n"]}


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("a: 1\nb: 2\na: 3", 3, "'a' is there twice"),
        ("a:\n  b: 1\n  b: 2", 3, "'b' is there twice"),
        ("a: &x 1\nb: *x", 1, "anchors"),
        ("a: 1\nb: *x", 2, "aliases"),
        ("a: 1\nb: !!python/object/apply:os.system [id]", 2, "tag"),
        ("a: !!str 1", 1, "tag"),
        ("a: !custom x", 1, "tag"),
        ("a: 1\n\tb: 2", 2, "not YAML"),
        ("a: [1, 2", 1, "not YAML"),
        ("a: 'open", 1, "not YAML"),
        ("a: b: c", 1, "not YAML"),
        ("a: 1\n---\nb: 2", 2, "not YAML"),
        ("[1]: 2", 1, "key"),
        ("a: " + "[" * 50 + "]" * 50, 1, "deeper than 32"),
        ("a: " + "9" * 5000, 1, "digits"),
    ],
)
def test_what_is_refused_is_found_by_its_line(text: str, line: int, complaint: str) -> None:
    with pytest.raises(InvalidSpec, match=complaint) as caught:
        load_yaml(text, "job.yaml")
    assert caught.value.message.startswith(f"job.yaml:{line}: ")


@pytest.mark.parametrize(
    "text", ["", "# only a comment", "- 1", "text", "5", "null", "\0", "a: \x07"]
)
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="job.yaml: "):
        load_yaml(text, "job.yaml")


def test_a_bomb_is_refused_at_once() -> None:
    bomb = "a: &a [x, x]\n" + "\n".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]" for n in range(20)
    )
    with pytest.raises(InvalidSpec, match="anchors"):
        load_yaml(bomb, "job.yaml")
    with pytest.raises(InvalidSpec, match="longer"):
        load_yaml("a: " + "x" * MAX_CHARACTERS, "job.yaml")
    with pytest.raises(InvalidSpec, match="deeper"):
        load_yaml("[" * 100_000, "job.yaml")
