"""``frenzy logs`` and ``frenzy events``."""

import sys
from typing import Annotated

import typer

from frenzy.cli import output, watching
from frenzy.cli.options import Format, JobArgument, Output, Url
from frenzy.client import Client
from frenzy_shared.messages.envelope import CloudEvent, short_kind


def logs(
    job: JobArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over.")
    ] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last so many lines.")] = None,
    url: Url = None,
) -> None:
    """Show what a job's ranks wrote.

    Each line begins with its [rank], or with [attempt.rank] once there are several attempts; with
    --rank lines are shown as they were written. With -f the exit code is the job's outcome and
    stderr tells its state; Ctrl-C stops following, not the job.
    """
    with Client(url) as client:
        handle = client.job(job)
        if follow:
            watching.follow_to_end(handle, rank=rank, attempt=attempt, tail=tail)
        else:
            for line in handle.logs(rank=rank, attempt=attempt, tail=tail):
                sys.stdout.write(f"{line}\n")


def events(
    job: JobArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over.")
    ] = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Show a job's events.

    JSON is one CloudEvent a line with -f, else one array.
    """
    with Client(url) as client:
        handle = client.job(job)
        found = handle.events(follow=follow)
        if not follow and output_ in (Format.JSON, Format.YAML):
            output.write_data([output.as_json(event) for event in found], output_)
            return
        with watching.detachable(handle):
            for event in found:
                sys.stdout.write(_line(event, output_) + "\n")
                sys.stdout.flush()


def _line(event: CloudEvent, output_: Format) -> str:
    if output_ in (Format.JSON, Format.YAML):
        return event.model_dump_json(exclude_none=True)
    if output_ is Format.NAME:
        return event.id
    record = event.data.get("record") or {}
    words = [str(event.data.get(key) or record.get(key) or "") for key in ("reason", "message")]
    text = f"{event.time}  {short_kind(event.type):12} {record.get('state', ''):10} "
    return output.printable(text + " ".join(word for word in words if word)).rstrip()
