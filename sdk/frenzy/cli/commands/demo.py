"""``frenzy demo``: four real jobs on an emulated mixed cluster, from the plan to the last loss."""

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from frenzy.cli import exits, output, show
from frenzy.cli.demo_report import Outcome, as_expected, as_json, summary
from frenzy.cli.options import Format, Output
from frenzy.client import Client
from frenzy.errors import NoFeasiblePlan, TimedOut
from frenzy.job import Job
from frenzy.local.demo import DemoCluster, DemoJob, jobs, temporary_cluster
from frenzy_shared.domain.job import JobState
from frenzy_shared.messages.http import JobView

_POLL_S: Final = 0.5
_LIMIT_S: Final = 600.0


def demo(*, output_: Output = Format.TABLE) -> None:
    """Train four real jobs on an emulated mixed cluster and watch them.

    Everything is temporary and beside a running `frenzy up`; nothing is left at the end, also
    after Ctrl-C. With -o json the last line of stdout is one JSON object.
    """
    started = time.monotonic()
    machine = output_ is Format.JSON
    console = output.err() if machine else output.out()
    with _terminable(), temporary_cluster(_Narrator(console)) as cluster:
        outcomes = _run(console, cluster)
        console.print(Text("\nresult: predicted and observed peak of every rank", style="bold"))
        console.print(summary(outcomes))
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
        running: list[Job] = []
        refused: list[Outcome] = []
        for item in jobs(cluster.corpus):
            submitted = _introduce(console, client, item, capacities)
            if isinstance(submitted, Job):
                running.append(submitted)
            else:
                refused.append(submitted)
        console.print(Text("\nrunning", style="bold"))
        _watch(console, running)
        for job in running:
            if job.state is not JobState.SUCCEEDED:
                _tell_failure(console, job)
        return [Outcome(name=job.name, view=job.view) for job in running] + refused


def _introduce(
    console: Console, client: Client, item: DemoJob, capacities: dict[str, int]
) -> Job | Outcome:
    """Show a job's plan and submit it."""
    name = item.spec["name"]
    console.print()
    console.print(Text(f"{name}: {item.title}", style="bold"))
    console.print(show.plans(client.plan(item.spec), capacities))
    try:
        job = client.submit(item.spec)
    except NoFeasiblePlan as error:
        console.print(Text(f"refused at submit: {error.message}", style="yellow"))
        for hint in error.suggestions:
            console.print(Text(f"  try: {hint}"))
        return Outcome(name=name, view=None)
    console.print(f"submitted as {job.id}")
    return job


def _watch(console: Console, running: Sequence[Job]) -> None:
    """Print a line whenever a job has something new, until all are over."""
    seen: dict[str, tuple[object, ...]] = {}
    start = time.monotonic()
    while not all(job.done for job in running):
        if time.monotonic() - start > _LIMIT_S:
            raise TimedOut(f"the jobs are not over after {_LIMIT_S:.0f} s")
        for job in running:
            if job.done:
                continue
            view = job.refresh()
            waits = view.pending.reason if view.pending else ""
            news = (view.state, view.attempt, view.last_step, waits)
            if seen.get(job.id) != news:
                seen[job.id] = news
                console.print(_news(view, time.monotonic() - start))
        time.sleep(_POLL_S)


def _news(view: JobView, at_s: float) -> Text:
    line = Text(f"{at_s:5.1f} s  {view.name:10} ")
    line.append(show.state(view.state))
    line.append(" " * (11 - len(view.state)))
    if view.state is JobState.RUNNING and view.last_step is not None:
        loss = f"loss {view.last_loss:.3f}" if view.last_loss is not None else ""
        line.append(f"step {view.last_step:<4} {loss}")
    elif view.devices:
        line.append(show.devices(view) or "")
    elif view.pending is not None:
        line.append(f"{view.pending.reason}: {view.pending.message}")
    return line


def _tell_failure(console: Console, job: Job) -> None:
    console.print(Text(f"\n{job.name} ended {job.state}: {job.view.reason} {job.view.message}"))
    for line in job.logs(tail=15):
        console.print(Text(f"  {output.printable(line)}", style="dim"))


class _Narrator:
    """Prints each step of a start or stop once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def __call__(self, step: str) -> None:
        if step and step != self._last:
            self._last = step
            self._console.print(Text(f"  {step}", style="dim"))


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
