"""Read job traces, row by row, and refuse what is impossible with the line that is."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from frenzy_scheduler.core.urgency import NORMAL
from frenzy_shared.domain.ids import JobId, ProjectName, is_name
from frenzy_simulator.errors import InvalidTrace
from frenzy_simulator.jobs import DEFAULT_PROJECT, TraceJob
from frenzy_simulator.schemas import COMMON, Schema, schema_of

MAX_GPUS: Final = 100_000
MAX_JOBS: Final = 1_000_000
_MAX_FIELD: Final = 1 << 16  # characters of one cell


def load_trace(
    path: Path,
    *,
    limit: int | None = None,
    largest: int | None = None,
    cap: bool = False,
    resort: bool = False,
) -> list[TraceJob]:
    """Read a CSV trace in any known schema; the first submission becomes second 0.

    ``limit`` stops after that many jobs, so that a huge file costs no more than its head.
    ``largest`` is the size of the cluster: who asks for more is refused, or with ``cap`` cut.
    ``resort`` reads the whole file and sorts it, instead of refusing one that is not sorted.

    Raises:
        InvalidTrace: naming the line and what is wrong with it.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return parse_trace(
                lines, name=str(path), limit=limit, largest=largest, cap=cap, resort=resort
            )
    except OSError as error:
        raise InvalidTrace(
            f"cannot read {path}: {error.strerror}",
            suggestions=["public traces are not part of Frenzy; docs/howto/simulate.md has links"],
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidTrace(f"{path} is not UTF-8 text: {error.reason}") from error


def parse_trace(
    lines: Iterable[str],
    *,
    name: str = "trace",
    limit: int | None = None,
    largest: int | None = None,
    cap: bool = False,
    resort: bool = False,
) -> list[TraceJob]:
    """Read trace lines; see ``load_trace``.

    Raises:
        InvalidTrace: naming the line and what is wrong with it.
    """
    csv.field_size_limit(_MAX_FIELD)
    reader = csv.DictReader(lines)
    jobs: list[TraceJob] = []
    try:
        schema = _schema(list(reader.fieldnames or ()), name)
        found = _jobs(reader, schema, name)
        if resort:
            found = iter(sorted(found, key=lambda one: (one[1].submit_s, one[0])))
        for line, job in _checked(found, name):
            jobs.append(_within(job, largest, f"{name}:{line}", cap=cap))
            if len(jobs) == limit:
                break
    except csv.Error as error:
        raise InvalidTrace(f"{name}:{reader.line_num}: {error}") from error
    if not jobs:
        raise InvalidTrace(f"{name} has no jobs that use GPUs")
    first = jobs[0].submit_s
    return [_shifted(job, first) for job in jobs]


def _schema(columns: list[str], name: str) -> Schema:
    if not columns:
        raise InvalidTrace(f"{name} is empty")
    schema = schema_of(columns)
    if schema is None:
        missing = [column for column in COMMON.required if column not in columns]
        raise InvalidTrace(
            f"{name} lacks the columns {', '.join(missing)}; it has {', '.join(columns[:12])}",
            suggestions=[
                f"the common columns are {', '.join(COMMON.required)}",
                "Helios, Acme and Alibaba PAI tables are known as they are",
            ],
        )
    return schema


def _jobs(rows: "csv.DictReader[str]", schema: Schema, name: str) -> Iterator[tuple[int, TraceJob]]:
    kept = 0
    for row in rows:
        where = f"{name}:{rows.line_num}"
        if None in row or None in row.values():
            raise InvalidTrace(f"{where}: has not as many cells as the header has columns")
        if schema.keep(row):
            kept += 1
            if kept > MAX_JOBS:
                raise InvalidTrace(
                    f"{where}: more than {MAX_JOBS} jobs",
                    suggestions=[f"--jobs {MAX_JOBS} takes the head of the trace"],
                )
            yield rows.line_num, _job(row, schema, where)


def _job(row: Mapping[str, str], schema: Schema, where: str) -> TraceJob:
    submit_s = _number(row, schema.submit, schema.seconds, where)
    if schema.duration:
        duration_s = _number(row, schema.duration, float, where)
    else:
        duration_s = _number(row, schema.end, schema.seconds, where)
        duration_s -= _number(row, schema.start, schema.seconds, where)
    try:
        gpus = schema.count(row)
    except ValueError as error:
        raise InvalidTrace(f"{where}: {schema.gpus}: {error}") from error
    job = TraceJob(
        id=JobId(row[schema.job].strip()),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus_requested=gpus,
        model_or_class=row.get(schema.model, ""),
        user_vc=row.get(schema.user, ""),
        status=row.get(schema.status, ""),
        priority=_priority(row.get(schema.priority, ""), where),
        project=_project(row.get(schema.project, ""), where),
    )
    _possible(job, schema, where)
    return job


def _priority(text: str, where: str) -> int:
    if not text.strip():
        return NORMAL
    try:
        priority = int(text)
    except ValueError:
        raise InvalidTrace(f"{where}: priority is {text[:40]!r}, not a whole number") from None
    if not 0 <= priority <= 100:
        raise InvalidTrace(f"{where}: priority is {priority}; it must be 0 to 100")
    return priority


def _project(text: str, where: str) -> ProjectName:
    name = text.strip() or DEFAULT_PROJECT
    if not is_name(name):
        raise InvalidTrace(f"{where}: project is {name[:40]!r}; use a-z, 0-9 and '-' only")
    return ProjectName(name)


def _possible(job: TraceJob, schema: Schema, where: str) -> None:
    problem = ""
    if not job.id:
        problem = f"{schema.job} is empty"
    elif job.submit_s < 0:
        problem = f"{schema.submit} is {job.submit_s:g}; it must not be negative"
    elif job.duration_s < 0:
        problem = f"{schema.duration or schema.end} gives {job.duration_s:g} s of running"
    elif job.gpus_requested < 1:
        problem = f"{schema.gpus} is {job.gpus_requested}; a job needs at least 1 GPU"
    elif job.gpus_requested > MAX_GPUS:
        problem = f"{schema.gpus} is {job.gpus_requested}; at most {MAX_GPUS} can be simulated"
    if problem:
        raise InvalidTrace(f"{where}: {problem}")


def _checked(jobs: Iterable[tuple[int, TraceJob]], name: str) -> Iterator[tuple[int, TraceJob]]:
    """Pass jobs on that are unique and sorted by submission."""
    seen: dict[JobId, int] = {}
    latest = -math.inf
    for line, job in jobs:
        if job.id in seen:
            raise InvalidTrace(f"{name}:{line}: job {job.id} was already on line {seen[job.id]}")
        if job.submit_s < latest:
            raise InvalidTrace(
                f"{name}:{line}: job {job.id} was submitted before the job above it",
                suggestions=["sort the trace by submission time, or let --sort do it"],
            )
        seen[job.id], latest = line, job.submit_s
        yield line, job


def _within(job: TraceJob, largest: int | None, where: str, *, cap: bool) -> TraceJob:
    if largest is None or job.gpus_requested <= largest:
        return job
    if not cap:
        raise InvalidTrace(
            f"{where}: job {job.id} asks for {job.gpus_requested} GPUs; the cluster has {largest}",
            suggestions=["--cap-gpus cuts requests to the cluster's size"],
        )
    return replace(job, gpus_requested=largest)


def _shifted(job: TraceJob, first_s: float) -> TraceJob:
    return replace(job, submit_s=job.submit_s - first_s) if first_s else job


def _number(row: Mapping[str, str], column: str, read: Callable[[str], float], where: str) -> float:
    try:
        value = read(row[column])
    except ValueError as error:
        raise InvalidTrace(f"{where}: {column} is {row[column][:40]!r}, not a time") from error
    if not math.isfinite(value):
        raise InvalidTrace(f"{where}: {column} is {row[column]}; it must be finite")
    return value
