"""Traces of Frenzy's own jobs: JSON lines of ``{"id", "submit_s", "spec": {...}}``."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from frenzy_shared.domain.ids import JobId
from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec
from frenzy_simulator.errors import InvalidTrace
from frenzy_simulator.jobs import SimJob


def load_specs(path: Path, *, limit: int | None = None) -> list[SimJob]:
    """Read a trace of job specifications; the first submission becomes second 0.

    Raises:
        InvalidTrace: naming the line and what is wrong with it.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return parse_specs(lines, name=str(path), limit=limit)
    except OSError as error:
        raise InvalidTrace(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidTrace(f"{path} is not UTF-8 text: {error.reason}") from error


def parse_specs(
    lines: Iterable[str], *, name: str = "trace", limit: int | None = None
) -> list[SimJob]:
    """Read lines; see ``load_specs``. A job without ``max_steps`` has no end and is refused.

    Raises:
        InvalidTrace: naming the line and what is wrong with it.
    """
    jobs: list[SimJob] = []
    seen: set[JobId] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        job = _job(_object(line, f"{name}:{number}"), len(jobs) + 1, f"{name}:{number}")
        if job.id in seen:
            raise InvalidTrace(f"{name}:{number}: job {job.id} is there twice")
        if jobs and job.submit_s < jobs[-1].submit_s:
            raise InvalidTrace(
                f"{name}:{number}: job {job.id} was submitted before the job above it",
                suggestions=["sort the trace by submit_s"],
            )
        seen.add(job.id)
        jobs.append(job)
        if len(jobs) == limit:
            break
    if not jobs:
        raise InvalidTrace(f"{name} has no jobs")
    first = jobs[0].submit_s
    return [replace(job, submit_s=job.submit_s - first) for job in jobs]


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidTrace(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict) or not {"id", "submit_s", "spec"} <= value.keys():
        raise InvalidTrace(f'{where}: a line is {{"id", "submit_s", "spec": {{...}}}}')
    return value


def _job(value: Mapping[str, Any], sequence: int, where: str) -> SimJob:
    submit_s = value["submit_s"]
    number = isinstance(submit_s, int | float) and not isinstance(submit_s, bool)
    if not number or not 0 <= submit_s < math.inf:
        raise InvalidTrace(f"{where}: submit_s is {submit_s!r}; it must be zero or more seconds")
    if not isinstance(value["id"], str) or not value["id"]:
        raise InvalidTrace(f"{where}: id must be a text")
    if not isinstance(value["spec"], dict):
        raise InvalidTrace(f"{where}: spec must be a job specification")
    try:
        spec = parse_spec(value["spec"])
        setup = training_setup(spec)
    except InvalidSpec as error:
        raise InvalidTrace(f"{where}: {error.message}", suggestions=error.suggestions) from error
    if setup.optimizer_steps is None:
        raise InvalidTrace(f"{where}: job {value['id']} needs max_steps: without, it has no end")
    return SimJob(
        id=JobId(value["id"]),
        sequence=sequence,
        submit_s=float(submit_s),
        setup=replace(setup, optimizer_steps=None),
        steps=float(setup.optimizer_steps),
        gpus_requested=setup.pins.device_count or 1,
        priority=spec.priority,
    )
