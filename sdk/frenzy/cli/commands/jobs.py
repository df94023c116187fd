"""``frenzy list | get | describe | explain | wait | cancel | hold | release``."""

import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from frenzy.cli import choice, closed, eta, exits, output, show, watching
from frenzy.cli.options import Format, JobArgument, JobArguments, Output, Quiet, Url
from frenzy.client import Client
from frenzy.errors import FrenzyError
from frenzy.job import Job
from frenzy_shared.domain.job import TERMINAL, JobState
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.http import ExplainView, JobView, TimelineEntry
from frenzy_shared.units import parse_duration_s

log = logging.getLogger(__name__)

_COLUMNS: dict[str, Any] = {
    "id": lambda job: job.id,
    "name": lambda job: job.name,
    "state": lambda job: show.state(job.state),
    "reason": lambda job: job.reason or (job.pending.reason if job.pending else ""),
    "gpus": show.devices,
    "step": lambda job: job.last_step,
    "loss": lambda job: f"{job.last_loss:.3f}" if job.last_loss is not None else None,
    "age": lambda job: show.age(job.created_at),
}
_WIDE: dict[str, Any] = {
    "project": lambda job: job.project,
    "attempt": lambda job: job.attempt,
    "priority": lambda job: job.priority,
    "by": lambda job: job.submitted_by,
    "message": lambda job: job.message or (job.pending.message if job.pending else ""),
}


_SIGN: Final = (
    "(error: the prediction is above (+) or below (-) what was observed, in percent of that; "
    "tokens/s is the whole gang's)"
)


def list_(
    *,
    state: Annotated[
        list[JobState] | None, typer.Option(help="Only this state; may be repeated.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only with this label.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """List jobs, newest first."""
    labels = dict(_label(text) for text in label or ())
    with Client(url) as client:
        found = client.jobs(project=project, states=state or (), labels=labels)
        views = [job.view for job, _ in zip(found, range(limit), strict=False)]
        closed.look(client)
    chosen = Format.NAME if quiet else output_
    output.write_list(views, chosen, _COLUMNS, wide=_WIDE, name=lambda job: job.id)
    if not views and chosen is Format.TABLE:
        output.err().print("no jobs; submit one: frenzy submit -f job.yaml")


def get(job: JobArgument, *, output_: Output = Format.TABLE, url: Url = None) -> None:
    """Show one job's fields."""
    with Client(url) as client:
        handle = client.job(job)
        view = handle.view
        if output_ in (Format.JSON, Format.YAML):
            output.write_data(output.as_json(view), output_)
            return
        if output_ is Format.NAME:
            sys.stdout.write(f"{view.id}\n")
            return
        predicted = _predicted(handle)
    shown = {**_COLUMNS, **_WIDE} if output_ is Format.WIDE else _COLUMNS
    facts = {name: get(view) for name, get in shown.items()}
    output.out().print(output.fields({**facts, **({"eta": predicted} if predicted else {})}))


def describe(job: JobArgument, *, output_: Output = Format.TABLE, url: Url = None) -> None:
    """Show a job's whole story: timeline, placement, memory."""
    with Client(url) as client:
        handle = client.job(job)
        timeline = handle.timeline()
        capacities = show.capacities(client.nodes())
        policy = choice.policy_of(client) if handle.view.devices else ""
        found = handle.plans() if handle.view.devices else None
        placed = "" if found is None else _placed(handle.view, found, capacities, policy)
        predicted = _predicted(handle)
    if output_ in (Format.JSON, Format.YAML):
        entries = [output.as_json(entry) for entry in timeline]
        output.write_data({**output.as_json(handle.view), "timeline": entries}, output_)
        return
    console = output.out()
    console.print(_facts(handle.view, placed, predicted))
    if handle.view.plan is not None:
        kind = handle.view.plan.kind
        console.print(show.plan_block(handle.view.plan, capacities.get(kind)))
    if handle.view.ranks:
        console.print(Text("\nranks: predicted and observed peak", style="bold"))
        console.print(Text(_SIGN, style="dim"))
        console.print(show.ranks(handle.view))
    console.print(Text("\ntimeline", style="bold"))
    console.print(_timeline_table(timeline))


def explain(job: JobArgument, *, output_: Output = Format.TABLE, url: Url = None) -> None:
    """Say why a job waits, or why it runs as it does."""
    with Client(url) as client:
        handle = client.job(job)
        pending = handle.explain()
        found = handle.plans()
        capacities = show.capacities(client.nodes())
        policy = choice.policy_of(client)
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(pending), output_)
        return
    console = output.out()
    console.print(_why(handle.view, pending, _placed(handle.view, found, capacities, policy)))
    if pending.eta is not None and pending.basis is not None:
        console.print(Text(f"({eta.foundation(pending.basis)})", style="dim"))
    if found.plans or found.refused:
        console.print()
        chosen = handle.view.plan if handle.view.devices else None
        limit = None if output_ is Format.WIDE else 3
        shown = show.plans(found, capacities, policy=policy, chosen=chosen, limit=limit)
        console.print(shown)


def wait(
    jobs: JobArguments,
    *,
    timeout: Annotated[
        str | None, typer.Option(help="Give up after this long: 100 (seconds), 90s, 30m, 12h.")
    ] = None,
    quiet: Quiet = False,
    url: Url = None,
) -> None:
    """Wait until jobs are over; the exit code is the outcome.

    With several jobs it is the outcome of the first that did not succeed.
    """
    seconds = _timeout_s(timeout)
    outcome = exits.Exit.OK
    with Client(url) as client:
        for job in jobs:
            handle = client.job(job)
            with watching.detachable(handle):
                view = handle.wait(seconds)
            outcome = outcome or exits.of_job(view.state, view.reason)
            if not quiet:
                sys.stdout.write(f"{view.id} {view.state} {view.reason}".rstrip() + "\n")
    raise typer.Exit(outcome)


def cancel(
    jobs: JobArguments,
    *,
    array: Annotated[
        bool, typer.Option("--array", help="The ids are of arrays: cancel all their jobs.")
    ] = False,
    quiet: Quiet = False,
    url: Url = None,
) -> None:
    """Cancel jobs."""
    if not array:
        _each(jobs, Job.cancel, quiet=quiet, url=url)
        return
    with Client(url) as client:
        for name in jobs:
            cancelled = client.cancel_array(name).jobs
            sys.stdout.writelines(f"{job}\n" for job in cancelled)


def hold(jobs: JobArguments, *, quiet: Quiet = False, url: Url = None) -> None:
    """Keep waiting jobs from starting until they are released."""
    _each(jobs, Job.hold, quiet=quiet, url=url)


def release(jobs: JobArguments, *, quiet: Quiet = False, url: Url = None) -> None:
    """Let jobs that were held back start again."""
    _each(jobs, Job.release, quiet=quiet, url=url)


def _each(
    jobs: list[str], action: Callable[[Job], JobView], *, quiet: bool, url: str | None
) -> None:
    """Do something to every job, whatever happens to the others."""
    failed: FrenzyError | None = None
    with Client(url) as client:
        for job in jobs:
            try:
                view = action(client.job(job))
            except FrenzyError as error:
                output.err().print(f"{job}: {error.message}", markup=False)
                failed = failed or error
            else:
                sys.stdout.write(f"{view.id}\n" if quiet else f"{view.id} {view.state}\n")
    if failed is not None:
        raise typer.Exit(exits.of_error(failed))


def _facts(job: JobView, placed: str, predicted: str) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    facts: dict[str, object] = {
        "job": f"{job.id}  {job.name}  (project {job.project})",
        "state": show.state(job.state),
        "reason": " ".join(filter(None, (job.reason, job.message))),
        "waits": f"{job.pending.reason}: {job.pending.message}" if job.pending else "",
        "nearest": job.pending.nearest if job.pending else "",
        "placed": placed,
        "eta": predicted,
        "attempt": job.attempt,
        "progress": f"step {job.last_step}, loss {job.last_loss:.4f}"
        if job.last_step is not None and job.last_loss is not None
        else "",
        "checkpoint": f"step {job.checkpoint_step}" if job.checkpoint_step is not None else "",
        "submitted": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC by {job.submitted_by or '-'}",
        "ran": _ran(job),
    }
    for name, value in facts.items():
        if value not in (None, ""):
            shown = value if isinstance(value, Text) else Text(output.printable(str(value)))
            rows.add_row(name, shown)
    return rows


def _placed(job: JobView, found: PlanSet, capacities: dict[str, int], policy: str) -> str:
    """Say where a job is and why it got that plan; "" before it was placed."""
    if not job.devices or job.plan is None:
        return ""
    reason = choice.reason(found, job.plan, capacities, policy)
    where = f"{show.devices(job)}, plan {job.plan.id}"
    return f"{where}: {reason}" if reason else where


def _predicted(job: Job) -> str:
    """Say when a job will start and end; "" when it is over, or nobody knows or answers."""
    if job.done:
        return ""
    try:
        answer = job.explain()
    except FrenzyError as error:  # the rest is worth showing without it
        log.debug("no prediction for %s: %s", job.id, error)
        return ""
    return eta.sentence(answer.eta, answer.basis) if answer.eta is not None else ""


def _ran(job: JobView) -> str:
    if job.started_at is None:
        return ""
    end = job.finished_at or job.updated_at
    return show.duration((end - job.started_at).total_seconds())


def _timeline_table(entries: tuple[TimelineEntry, ...]) -> Table:
    return output.table(
        {
            "time": [f"{entry.time:%H:%M:%S}" for entry in entries],
            "state": [show.state(entry.state) for entry in entries],
            "attempt": [entry.attempt or None for entry in entries],
            "reason": [entry.reason for entry in entries],
            "message": [entry.message for entry in entries],
        }
    )


def _why(job: JobView, pending: ExplainView, placed: str) -> Text:
    lines = [f"{job.id} {job.name} is {job.state}"]
    if pending.reason or pending.message:
        lines.append(": ".join(filter(None, (pending.reason, pending.message))))
    if pending.nearest and pending.nearest not in pending.message:
        lines.append(f"nearest: {pending.nearest}")
    if pending.position is not None and job.state not in TERMINAL:
        lines.append(f"position in the queue: {pending.position}")
    if pending.eta is not None:
        lines.append(eta.sentence(pending.eta, pending.basis))
    lines += [f"- {way.text}" for way in pending.would_start]
    if placed:
        lines.append(f"placed on {placed}")
    return Text("\n".join(output.printable(line) for line in lines))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--label")
    return key, value


def _timeout_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_s(f"{text}s" if text[-1:].isdigit() else text)
    except ValueError:
        detail = f"{text!r} is not a duration; write for example 100 (seconds), 90s, 30m or 12h"
        raise typer.BadParameter(detail, param_hint="--timeout") from None
