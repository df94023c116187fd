"""From the specification of an array to those of its jobs. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from frenzy_shared.errors import FrenzyError, Unavailable, wrong_field
from frenzy_shared.messages.arrays import INDEX_LABEL, LABEL, Array
from frenzy_shared.messages.spec import JobSpec, parse_spec

_FIXED: Final = frozenset({"array", "depends_on", "depends_on_end", "name"})  # alike in all jobs


def expand(spec: JobSpec, array: str, name: str) -> tuple[JobSpec, ...]:
    """Return the specifications of an array's jobs, in the order of their indices.

    ``array`` is its id, and ``name`` what the jobs are named after.

    Raises:
        InvalidSpec: it is no array, or a value makes a wrong specification.
    """
    if spec.array is None:
        raise wrong_field("/array", "is required: an array's count or values")
    for label in (LABEL, INDEX_LABEL):
        if label in spec.labels:
            raise wrong_field(f"/labels/{label}", "is set by Frenzy on the jobs of an array")
    common = spec.model_dump(mode="json", exclude={"array"}, exclude_unset=True)
    elements = []
    for index, value in enumerate(_values(spec.array)):
        document = _document(common, index, value, array, name)
        with about_element(spec, index):
            elements.append(parse_spec(document))
    return tuple(elements)


@contextmanager
def about_element(spec: JobSpec, index: int) -> Iterator[None]:
    """Turn what is wrong with one of an array's jobs into errors that name its value."""
    try:
        yield
    except Unavailable:
        raise  # says nothing about the job
    except FrenzyError as error:
        raise _of_element(error, spec, index) from None


def _of_element(error: FrenzyError, spec: JobSpec, index: int) -> FrenzyError:
    values = spec.array.values if spec.array is not None else None
    value = values[index] if values is not None else {}
    own = value.keys() if isinstance(value, dict) else ()
    problems = [
        replace(problem, pointer=f"/array/values/{index}{problem.pointer}")
        if problem.pointer.split("/")[1:2] in [[key] for key in own]
        else problem
        for problem in error.problems
    ]
    what = "job" if values is None else "value"
    return type(error)(
        f"array.{index}: {error.message}",
        problems=problems,
        suggestions=(
            *error.suggestions,
            f"look at {what} {index} of the array, counted from 0",
        ),
    )


def _values(array: Array) -> Iterator[str | dict[str, Any]]:
    if array.values is not None:
        yield from array.values
    else:
        yield from map(str, range(array.count or 0))


def _document(
    common: dict[str, Any], index: int, value: str | dict[str, Any], array: str, name: str
) -> dict[str, Any]:
    own: dict[str, Any] = {} if isinstance(value, str) else value
    if fixed := sorted(_FIXED & own.keys()):
        raise wrong_field(
            f"/array/values/{index}/{fixed[0]}", "is the same for all jobs of an array"
        )
    labels = {**common.get("labels", {}), **own.get("labels", {})}
    document = {
        **common,
        **own,
        "name": f"{name}-{index}",
        "labels": {**labels, LABEL: array, INDEX_LABEL: str(index)},
    }
    places = {"{index}": str(index)}
    if isinstance(value, str):
        places["{value}"] = value
    if isinstance(document.get("entrypoint"), dict):
        script = document["entrypoint"]
        args = [_filled(text, places) for text in script.get("args", ())]
        document["entrypoint"] = {**script, "args": args}
    env = document.get("env", {})
    document["env"] = {key: _filled(text, places) for key, text in env.items()}
    return document


def _filled(text: Any, places: dict[str, str]) -> Any:  # noqa: ANN401 - checked by parse_spec
    if isinstance(text, str):
        for place, value in places.items():
            text = text.replace(place, value)
    return text
