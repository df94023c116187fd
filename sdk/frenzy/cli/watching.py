"""Follow a job in a terminal: its log, then its outcome; Ctrl-C lets go of it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import typer

from frenzy.cli import exits, output, show
from frenzy.cli.news import News
from frenzy.job import Job
from frenzy.streams import LogEntry, LogGap
from frenzy_shared.domain.job import JobState


@contextmanager
def detachable(job: Job) -> Iterator[None]:
    """Turn Ctrl-C into letting go: the job goes on, the exit code is 130."""
    try:
        yield
    except KeyboardInterrupt:
        output.err().print(
            f"\nstopped following; job {job.id} goes on. Again: frenzy logs -f {job.id}"
            f"   stop it: frenzy cancel {job.id}"
        )
        raise typer.Exit(exits.Exit.INTERRUPTED) from None


def follow_to_end(
    job: Job,
    *,
    rank: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    machine: bool = False,
    quiet: bool = False,
) -> None:
    """Write the log as it comes, then exit with the job's outcome.

    With ``machine`` the log goes to stderr, so that stdout holds only data. Unless ``quiet``,
    stderr tells the job's state and why it waits.
    """
    stream = sys.stderr if machine else sys.stdout
    with detachable(job), nullcontext() if quiet else News(job):
        several = attempt is None and job.view.attempt > 1
        for entry in job.log_entries(rank=rank, attempt=attempt, tail=tail):
            if isinstance(entry, LogGap):
                sys.stderr.write(f"[log lines are missing: {entry.detail}]\n")
                continue
            several = several or (attempt is None and entry.attempt > 1)
            stream.write(prefix(entry, several=several) if rank is None else "")
            stream.write(f"{entry.text}\n")
            stream.flush()
        view = job.wait()
    line = f"{view.id} {view.state}"
    line += f" ({view.reason}) {view.message}" if view.state is not JobState.SUCCEEDED else ""
    output.err().print(output.printable(line.rstrip()), style=show.state(view.state).style)
    raise typer.Exit(exits.of_job(view.state, view.reason))


def prefix(entry: LogEntry, *, several: bool) -> str:
    """Name who wrote a line: its rank, and its attempt too when there are ``several``."""
    return f"[{entry.attempt}.{entry.rank}] " if several else f"[{entry.rank}] "
