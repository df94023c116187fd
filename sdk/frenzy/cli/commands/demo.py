"""``frenzy demo``: four real jobs on an emulated mixed cluster, from the plan to the last loss."""

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from frenzy.cli import exits, output, show
from frenzy.cli.demo_report import NOTES, Outcome, as_expected, as_json, summary
from frenzy.cli.hints import hints
from frenzy.client import Client
from frenzy.errors import NoFeasiblePlan, TimedOut
from frenzy.job import Job
from frenzy.local.demo import POLICY, DemoCluster, DemoJob, jobs, temporary_cluster
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages.http import JobView

_POLL_S: Final = 0.5
_PROGRESS_S: Final = 2.0
_LIMIT_S: Final = 600.0
_PIPE_WIDTH: Final = 118  # people read a demo's output, also from a file


class DemoFormat(StrEnum):
    """How the result is written to stdout."""

    TABLE = "table"
    JSON = "json"


def demo(
    *,
    output_: Annotated[
        DemoFormat, typer.Option("--output", "-o", help="How to write the result.")
    ] = DemoFormat.TABLE,
) -> None:
    """Train four real jobs on an emulated mixed cluster and watch them.

    Everything is temporary and beside a running `frenzy up`; nothing is left at the end, also
    after Ctrl-C. With -o json the last line of stdout is one JSON object.
    """
    started = time.monotonic()
    machine = output_ is DemoFormat.JSON
    console = (output.err if machine else output.out)(pipe_width=_PIPE_WIDTH)
    with _terminable(), temporary_cluster(output.Narrator(console, "  ")) as cluster:
        outcomes = _run(console, cluster)
        console.print(Text("\nresult: what was predicted, what was observed", style="bold"))
        console.print(summary(outcomes))
        console.print(Text(NOTES, style="dim"))
    wall_s = time.monotonic() - started
    console.print(f"done in {wall_s:.0f} s; everything is stopped and removed")
    if machine:
        result = {"jobs": [as_json(outcome) for outcome in outcomes], "wall_s": round(wall_s, 1)}
        sys.stdout.write(json.dumps(result) + "\n")
    if not all(as_expected(outcome) for outcome in outcomes):
        raise typer.Exit(exits.Exit.ERROR)


def _run(console: Console, cluster: DemoCluster) -> list[Outcome]:
    with Client(cluster.url, cluster.token) as client:
        nodes = client.nodes()
        console.print(Text("\nthe cluster (emulated on this CPU)", style="bold"))
        for node in nodes:
            console.print(f"  {node.id}: {show.gpu_summary(node)}")
        capacities = show.capacities(nodes)
        running: list[_Progress] = []
        start = time.monotonic()
        refused: list[Outcome] = []
        for item in jobs(cluster.corpus):
            submitted = _introduce(console, client, item, capacities)
            if isinstance(submitted, Job):
                running.append(_Progress(submitted, item.spec["max_steps"], start))
            else:
                refused.append(submitted)
        console.print(Text("\nrunning", style="bold"))
        _watch(console, running)
        followed = [progress.job for progress in running]
        for job in followed:
            if job.state is not JobState.SUCCEEDED:
                _tell_failure(console, job)
        return [Outcome(name=job.name, view=job.view) for job in followed] + refused


def _introduce(
    console: Console, client: Client, item: DemoJob, capacities: dict[str, int]
) -> Job | Outcome:
    """Show a job's plan and submit it."""
    name = item.spec["name"]
    console.print()
    console.print(Text(f"{name}: {item.title}", style="bold"))
    found = client.plan(item.spec)
    if found.feasible:
        console.print(show.plans(found, capacities, policy=POLICY))
    try:
        job = client.submit(item.spec)
    except NoFeasiblePlan as error:
        console.print(Text(f"refused at submit: {error.message}", style="yellow"))
        for hint in hints(error):
            console.print(Text(f"  try: {hint}"))
        return Outcome(name=name, view=None)
    console.print(f"submitted as {job.id}")
    return job


@dataclass(slots=True)
class _Progress:
    """What was told of one job. ``started`` is when the first job was submitted, monotonic."""

    job: Job
    max_steps: int
    started: float
    _told: tuple[object, ...] = ()
    _step: int = 0
    _loss: float | None = None
    _asked: float = 0.0

    def news(self) -> Text | None:
        """Read the job again; return a line when there is something new."""
        view = self.job.refresh()
        if view.state is JobState.RUNNING and time.monotonic() - self._asked >= _PROGRESS_S:
            self._asked = time.monotonic()
            self._read_step()
        waits = view.pending.reason if view.pending else ""
        news = (view.state, view.attempt, self._step, waits)
        if news == self._told:
            return None
        self._told = news
        return self._line(view)

    def _read_step(self) -> None:
        """Read the step from the metrics: they are newer than what the job's record tells."""
        point = max(self.job.metrics(), key=lambda p: (p["attempt"], p["step"]), default=None)
        if point is not None:
            self._step, self._loss = point["step"], point.get("loss")

    def _line(self, view: JobView) -> Text:
        line = Text(f"{time.monotonic() - self.started:5.1f} s  {view.name:10} ")
        line.append(show.state(view.state))
        line.append(" " * (11 - len(view.state)))
        if view.state is JobState.RUNNING and self._step:
            loss = f"  loss {self._loss:.3f}" if self._loss is not None else ""
            line.append(f"step {self._step:>2} of {self.max_steps}{loss}")
        elif view.devices:
            loading = "; loading the model" if view.state is JobState.RUNNING else ""
            line.append(f"{show.devices(view)}{loading}")
        elif view.pending is not None:
            line.append(f"{view.pending.reason}: {view.pending.message}")
        return line


def _watch(console: Console, running: Sequence[_Progress]) -> None:
    """Print a line whenever a job has something new, until all are over."""
    deadline = time.monotonic() + _LIMIT_S
    while not all(progress.job.done for progress in running):
        if time.monotonic() > deadline:
            raise TimedOut(f"the jobs are not over after {_LIMIT_S:.0f} s")
        for progress in running:
            if not progress.job.done and (line := progress.news()) is not None:
                console.print(line)
        time.sleep(_POLL_S)


def _tell_failure(console: Console, job: Job) -> None:
    console.print(Text(f"\n{job.name} ended {job.state}: {job.view.reason} {job.view.message}"))
    for line in job.logs(tail=15):
        console.print(Text(f"  {output.printable(line)}", style="dim"))


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the demo as Ctrl-C does: everything is cleaned up, the exit code tells."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
