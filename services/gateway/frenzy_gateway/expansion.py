"""From the specification of an array to those of its jobs. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from frenzy_shared.errors import FieldProblem, InvalidSpec
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
        raise _wrong("/array", "is required: an array's count or values")
    for label in (LABEL, INDEX_LABEL):
        if label in spec.labels:
            raise _wrong(f"/labels/{label}", "is set by Frenzy on the jobs of an array")
    common = spec.model_dump(mode="json", exclude={"array"}, exclude_unset=True)
    return tuple(
        _element(common, index, value, array, name)
        for index, value in enumerate(_values(spec.array))
    )


def _values(array: Array) -> Iterator[str | dict[str, Any]]:
    if array.values is not None:
        yield from array.values
    else:
        yield from map(str, range(array.count or 0))


def _element(
    common: dict[str, Any], index: int, value: str | dict[str, Any], array: str, name: str
) -> JobSpec:
    own: dict[str, Any] = {} if isinstance(value, str) else value
    if fixed := sorted(_FIXED & own.keys()):
        raise _wrong(f"/array/values/{index}/{fixed[0]}", "is the same for all jobs of an array")
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
    try:
        return parse_spec(document)
    except InvalidSpec as error:
        raise InvalidSpec(
            f"array.{index}: {error.message}",
            problems=error.problems,
            suggestions=(f"look at value {index} of the array, counted from 0",),
        ) from None


def _filled(text: Any, places: dict[str, str]) -> Any:  # noqa: ANN401 - checked by parse_spec
    if isinstance(text, str):
        for place, value in places.items():
            text = text.replace(place, value)
    return text


def _wrong(pointer: str, detail: str) -> InvalidSpec:
    problem = FieldProblem(pointer=pointer, detail=detail)
    where = pointer.lstrip("/").replace("/", ".")
    return InvalidSpec(f"{where}: {detail}", problems=(problem,))
