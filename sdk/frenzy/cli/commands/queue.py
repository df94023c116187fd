"""``frenzy queue``: who waits, why, and until when."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from frenzy.cli import closed, eta, exits, output, show
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy_shared.messages.answers import QueueEntry
from frenzy_shared.messages.http import QueueView

_POLL_S: Final = 3.0
_COLUMNS: Final = ("", "job", "name", "priority", "reason", "starts in", "done in")
_WIDE: Final = ("project", "age", "message")


def queue(
    *,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it until Ctrl-C.")] = False,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Show who waits, why, and when each job will start and end.

    In the order in which the scheduler's policy tries jobs. Times are predictions: as likely
    before the first as after it, and in 9 of 10 cases before p90.
    """
    chosen = Format.NAME if quiet else output_
    if watch and chosen not in (Format.TABLE, Format.WIDE):
        raise typer.BadParameter("shows tables only: leave out --output", param_hint="--watch")
    with Client(url) as client:
        if watch:
            _watch(client, project, limit, chosen)
        else:
            _write(client.queue(project=project, limit=limit), chosen)


def _write(view: QueueView, chosen: Format) -> None:
    closed.say(view.safe_mode)
    if chosen in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(view), chosen)
    elif chosen is Format.NAME:
        output.out().print("\n".join(entry.job for entry in view.entries), markup=False)
    elif view.entries:
        output.out().print(_table(view, chosen))
        output.err().print(Text(_foot(view.model_copy(update={"safe_mode": ""})), style="dim"))
    else:
        output.err().print("nobody waits")


def _watch(client: Client, project: str | None, limit: int, chosen: Format) -> None:
    """Show the queue again and again: in place in a terminal, else one below the other."""
    console = output.out()
    try:
        with _screen(console) as draw:
            while True:
                view = client.queue(project=project, limit=limit)
                parts: list[RenderableType] = [_table(view, chosen)] if view.entries else []
                draw(Group(*parts, Text(_foot(view), style="dim")))
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        raise typer.Exit(exits.Exit.INTERRUPTED) from None


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    if not console.is_terminal:
        yield console.print
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        yield lambda shown: live.update(shown, refresh=True)


def _table(view: QueueView, chosen: Format) -> RenderableType:
    titles = (*_COLUMNS, *_WIDE) if chosen is Format.WIDE else _COLUMNS
    return output.rows_table(titles, (_row(entry, view)[: len(titles)] for entry in view.entries))


def _row(entry: QueueEntry, view: QueueView) -> list[object]:
    start, end = (entry.eta.start, entry.eta.end) if entry.eta is not None else (None, None)
    return [
        entry.position,
        entry.job,
        entry.name,
        entry.priority,
        entry.reason,
        eta.cell(start, view.basis),
        eta.cell(end, view.basis),
        entry.project,
        show.age(entry.submitted_at),
        entry.message,
    ]


def _foot(view: QueueView) -> str:
    shown = len(view.entries)
    jobs = "nobody waits" if not view.total else f"{view.total} waiting under policy {view.policy}"
    more = f"; the first {shown} are shown" if shown < view.total else ""
    rest = f"; {eta.foundation(view.basis)}" if view.basis is not None and view.total else ""
    shut = f"\n{closed.sentence(view.safe_mode)}" if view.safe_mode else ""
    return jobs + more + rest + shut
