"""Read YAML job files as plain data, without YAML's surprises.

Scalars follow YAML 1.2's core schema: ``no`` is a text, ``3e-4`` a number, dates are texts.
Aliases, tags and duplicate keys are refused: a job file has no use for them, an attacker has.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from frenzy_shared.errors import InvalidSpec

MAX_CHARACTERS: Final = 1024**2
MAX_DEPTH: Final = 32

_TAG: Final = "tag:yaml.org,2002:"


def load_yaml(text: str, where: str) -> dict[str, Any]:
    """Return the mapping that a YAML (or JSON) text holds; ``where`` names it in errors.

    Raises:
        InvalidSpec: "<where>:<line>: <what is wrong>".
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidSpec(f"{where}: longer than {MAX_CHARACTERS} characters")
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = None if node is None else _value(node)
    except _Refused as refused:
        raise InvalidSpec(f"{where}:{refused.line}: {refused}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InvalidSpec(f"{where}{line}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InvalidSpec(f"{where}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise InvalidSpec(
            f"{where}: a job specification is a mapping of keys to values",
            suggestions=("begin with: model: gpt2-tiny",),
        )
    return value


class _Refused(Exception):
    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Composes nodes only; nothing is constructed by it."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - yaml's own attribute; filled below

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _Refused("anchors (&name) and aliases (*name) are not allowed", line)
        if event.tag not in (None, "!"):
            raise _Refused(f"the tag {event.tag} is not allowed", line)
        if self._depth >= MAX_DEPTH:
            raise _Refused(f"nested deeper than {MAX_DEPTH}", line)
        self._depth += 1
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _value(node: Node) -> Any:  # noqa: ANN401 - plain data of any kind
    if isinstance(node, SequenceNode):
        return [_value(item) for item in node.value]
    if isinstance(node, MappingNode):
        return _mapping(node)
    try:
        return _CONVERT.get(node.tag.removeprefix(_TAG), str)(node.value)
    except ValueError:  # Python refuses integers of thousands of digits
        raise _Refused("a number with too many digits", node.start_mark.line + 1) from None


def _mapping(node: MappingNode) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            raise _Refused("a key must be a single word", line)
        if key.value in result:
            raise _Refused(f"the key {key.value!r} is there twice", line)
        result[key.value] = _value(value)
    return result


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".Inf", "inf"))


_CONVERT: Final[dict[str, Callable[[str], Any]]] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 0) if text[1:2] in ("x", "o") else int(text),
    "float": _float,
}

for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf)|\.nan",
        tuple("-+0123456789."),
    ),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_pattern})$"), list(_first))
