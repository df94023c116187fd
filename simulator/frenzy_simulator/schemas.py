"""The columns of public traces, and how each becomes our common ones.

Sources: Philly (Jeon et al., ATC'19, msr-fiddle/philly-traces, as flattened by common tools),
Helios (Hu et al., SC'21, HeliosData ``cluster_log.csv``), Acme (Hu et al., NSDI'24, AcmeTrace
``trace_seren.csv``, ``trace_kalos.csv``) and Alibaba PAI (Weng et al., NSDI'22, cluster-trace-gpu
v2020: ``pai_task_table`` with the line of its header file on top, one task per job).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Where each common field is found. ``keep`` drops rows that are no GPU jobs."""

    name: str
    job: str
    submit: str
    gpus: str
    seconds: Callable[[str], float] = float
    duration: str = ""  # a column, else the difference of ``start`` and ``end``
    start: str = ""
    end: str = ""
    model: str = ""
    user: str = ""
    status: str = ""
    priority: str = ""
    project: str = ""
    gpus_factor: float = 1.0  # times the column, rounded up: shares of a GPU become one
    instances: str = ""  # a column that multiplies the GPUs
    keep: Callable[[Row], bool] = field(default=lambda _: True)

    @property
    def required(self) -> tuple[str, ...]:
        """Return the columns that must be there."""
        timing = (self.duration,) if self.duration else (self.start, self.end)
        return tuple(name for name in (self.job, self.submit, self.gpus, *timing) if name)

    def count(self, row: Row) -> int:
        """Return the GPUs of a row; part of a GPU counts as a whole one.

        Raises:
            ValueError: not a number, or not finite.
        """
        number = float(row[self.gpus]) * self.gpus_factor
        if self.instances and row.get(self.instances):
            number *= float(row[self.instances])
        if not math.isfinite(number):
            raise ValueError(f"{row[self.gpus]!r} is not a finite number")
        return math.ceil(number)


def clock(text: str) -> float:
    """Read a date and time, in UTC where it says nothing else, as seconds since the epoch.

    Raises:
        ValueError: not an ISO date and time.
    """
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _asks_for_gpus(column: str) -> Callable[[Row], bool]:
    """Helios, Acme and PAI also log CPU jobs and jobs that never started."""

    def keep(row: Row) -> bool:
        return row.get(column, "").strip() not in ("", "0", "0.0", "nan")

    return keep


COMMON: Final = Schema(
    name="frenzy",
    job="job_id",
    submit="submit_s",
    duration="duration_s",
    gpus="gpus_requested",
    model="model_or_class",
    user="user_vc",
    status="status",
    priority="priority",
    project="project",
)
HELIOS: Final = Schema(
    name="helios",
    job="job_id",
    submit="submit_time",
    duration="duration",
    gpus="gpu_num",
    seconds=clock,
    user="vc",
    status="state",
    keep=_asks_for_gpus("gpu_num"),
)
ACME: Final = Schema(
    name="acme",
    job="job_id",
    submit="submit_time",
    duration="duration",
    gpus="gpu_num",
    seconds=clock,
    model="type",
    user="user",
    status="state",
    keep=_asks_for_gpus("gpu_num"),
)
PAI: Final = Schema(
    name="pai",
    job="job_name",
    submit="start_time",
    start="start_time",
    end="end_time",
    gpus="plan_gpu",
    gpus_factor=0.01,  # per cent of a GPU
    instances="inst_num",
    user="user",
    status="status",
    keep=lambda row: _asks_for_gpus("plan_gpu")(row) and bool(row.get("end_time", "").strip()),
)
SCHEMAS: Final = (COMMON, ACME, HELIOS, PAI)


def schema_of(columns: list[str]) -> Schema | None:
    """Recognise a trace by its columns: of the fitting schemas, the one that lacks fewest."""
    fitting = [schema for schema in SCHEMAS if set(schema.required) <= set(columns)]
    return min(fitting, key=lambda schema: _lacking(schema, columns), default=None)


def _lacking(schema: Schema, columns: list[str]) -> int:
    optional = (schema.model, schema.user, schema.status)
    return sum(bool(name) and name not in columns for name in optional)
