"""What the public cases taught, shipped as data: ``evidence.json``, made by the benchmark.

``python -m benchmarks.memory_public --cases FILE --fit`` writes it. It holds the errors of the
analytical mode, the shifts and errors of the learned one, and how far off whole peaks of Hugging
Face's models are, which is what a cluster believes before runs of its own; no row, source or group.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.corrections import Correction, Errors

EVIDENCE: Final = "evidence.json"
USUAL: Final = "hugging_face_allocated"


@cache
def shipped(*, shifted: bool) -> Correction:
    """Return the shipped correction: with shifts, or the analytical mode's errors alone."""
    return from_json(_evidence()["learned" if shifted else "analytical"])


@cache
def usual_errors() -> Errors:
    """Return the shipped errors of allocated peaks where Hugging Face's models are trained."""
    return Errors(tuple(map(float, _evidence()[USUAL])))


def as_json(correction: Correction) -> dict[str, Any]:
    """Return a correction as JSON-ready data, in an order that does not change."""
    return {
        "required_scales": correction.required_scales,
        "errors": {
            metric.value: [round(value, 4) for value in errors.quantiles]
            for metric, errors in sorted(correction.errors.items())
        },
        "shifts": [
            {"metric": metric.value, "key": list(key), "shift": round(shift, 4)}
            for (metric, key), shift in sorted(correction.shifts.items())
        ],
    }


def from_json(value: dict[str, Any]) -> Correction:
    """Return the correction that ``as_json`` wrote."""
    return Correction(
        shifts={
            (word.Metric(entry["metric"]), tuple(entry["key"])): float(entry["shift"])
            for entry in value["shifts"]
        },
        errors={
            word.Metric(metric): Errors(tuple(map(float, quantiles)))
            for metric, quantiles in value["errors"].items()
        },
        required_scales=float(value["required_scales"]),
    )


@cache
def _evidence() -> dict[str, Any]:
    text = files("frenzy_marp.core.cases").joinpath(EVIDENCE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
