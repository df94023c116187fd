"""Golden files stay for ever: what was once written can always be read, and means the same.

A new field gets a new file ``<message>.<what changed>.json`` beside the old one.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from frenzy_shared.messages.base import Wire
from frenzy_shared.messages.schemas import MODELS, render, schema

GOLDEN = Path(__file__).parent / "golden"
SCHEMAS = Path(__file__).parents[3] / "docs" / "reference" / "schemas"
FILES = sorted(GOLDEN.glob("*.json"))
FREE_FORM = {
    "labels",
    "node_labels",
    "values",
    "over",
    "kinds",
    "env",
    "secrets",
    "data",
    "context",
    "model",
    "deepspeed_config",
    "environment",
}


def model_of(file: Path) -> type[Wire]:
    return MODELS[file.name.split(".")[0]]


def contains(larger: Any, smaller: Any) -> bool:
    """Tell whether a newer writer's JSON keeps everything of an older one."""
    if isinstance(smaller, dict):
        return isinstance(larger, dict) and all(
            key in larger and contains(larger[key], value) for key, value in smaller.items()
        )
    if isinstance(smaller, list):
        return len(larger) == len(smaller) and all(map(contains, larger, smaller))
    return type(larger) is type(smaller) and larger == smaller


def with_unknown_fields(value: Any) -> Any:
    """Return what a newer writer may send: one more field in every object of a known shape."""
    if isinstance(value, dict):
        more = {k: v if k in FREE_FORM else with_unknown_fields(v) for k, v in value.items()}
        return {**more, "from_the_future": {"x": [1]}}
    return [with_unknown_fields(item) for item in value] if isinstance(value, list) else value


def test_every_message_has_a_golden_file() -> None:
    assert {file.name.split(".")[0] for file in FILES} == set(MODELS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_file_is_read_and_written_equal(file: Path) -> None:
    message = model_of(file).decode(file.read_bytes())
    assert contains(json.loads(message.encode()), json.loads(file.read_bytes()))
    assert model_of(file).decode(message.encode()) == message


@pytest.mark.parametrize("name", MODELS)
def test_one_golden_file_has_every_field(name: str) -> None:
    """Otherwise a field could change its meaning unseen."""
    wholes = [
        json.loads(file.read_bytes())
        for file in FILES
        if file.name.split(".")[0] == name
        and json.loads(MODELS[name].decode(file.read_bytes()).encode())
        == json.loads(file.read_bytes())
    ]
    assert wholes, "no golden file of the present shape"
    unset = [key for whole in wholes for key, value in whole.items() if value in ({}, [], "")]
    assert unset == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_newer_writers_fields_are_ignored(file: Path) -> None:
    document = json.loads(file.read_bytes())
    newer = json.dumps(with_unknown_fields(document)).encode()
    assert model_of(file).decode(newer) == model_of(file).decode(file.read_bytes())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_writer_cannot_invent_fields(file: Path) -> None:
    document = json.loads(file.read_bytes())
    with pytest.raises(ValidationError):
        model_of(file).model_validate_json(json.dumps({**document, "invented": 1}))


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"\xff", b"NaN", b"5"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_not_the_message_is_refused(name: str, payload: bytes) -> None:
    with pytest.raises(ValidationError):
        MODELS[name].decode(payload)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_field_of_another_type_is_refused(file: Path) -> None:
    document = json.loads(file.read_bytes())
    first = next(key for key in document if key != "model")
    with pytest.raises(ValidationError):
        model_of(file).decode(json.dumps({**document, first: {"wrong": []}}).encode())


def test_unset_is_not_default() -> None:
    """None survives the wire where the default is something else."""
    spec = MODELS["job_spec"].decode((GOLDEN / "job_spec.json").read_bytes())
    assert spec.gradient_clipping is None
    assert MODELS["job_spec"].decode(spec.encode()) == spec


# -- schemas ----------------------------------------------------------------------------------


def test_schemas_are_the_published_ones() -> None:
    """Run ``python -m frenzy_shared.messages.schemas`` after a change."""
    published = {file.stem: file.read_text() for file in SCHEMAS.glob("*.json")}
    assert published == {name: render(name) for name in MODELS}


def test_only_what_people_write_is_closed() -> None:
    assert schema("job_spec")["additionalProperties"] is False
    assert "additionalProperties" not in schema("cloud_event")
    assert '"additionalProperties": false' not in render("evidence")
