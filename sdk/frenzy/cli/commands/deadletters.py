"""``frenzy admin dlq``: messages that a service gave up after its tries."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from frenzy.admin import Admin
from frenzy.cli import output, show
from frenzy.cli.groups import group
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy_shared.errors import BadRequest
from frenzy_shared.messages.http import DeadLetterView

_COLUMNS: dict[str, Any] = {
    "id": lambda letter: letter.id,
    "age": lambda letter: show.age(letter.time),
    "from": lambda letter: f"{letter.stream} {letter.sequence}",
    "consumer": lambda letter: letter.consumer,
    "reason": lambda letter: letter.reason,
}
_WIDE: dict[str, Any] = {
    "subject": lambda letter: letter.subject,
    "tries": lambda letter: letter.deliveries,
    "bytes": lambda letter: letter.size_bytes,
    "excerpt": lambda letter: letter.excerpt,
}

dlq = group()

Letters = Annotated[list[int] | None, typer.Argument(metavar="ID...", help="Letters' ids.")]
All = Annotated[bool, typer.Option("--all", help="All letters that are there now.")]


@dlq.callback()
def about() -> None:
    """Handle messages that a service gave up."""


@dlq.command("list")
def list_(*, quiet: Quiet = False, output_: Output = Format.TABLE, url: Url = None) -> None:
    """List dead letters, oldest first."""
    with Client(url) as client:
        letters = list(client.admin.dead_letters())
    chosen = Format.NAME if quiet else output_
    output.write_list(letters, chosen, _COLUMNS, wide=_WIDE, name=lambda letter: str(letter.id))


@dlq.command()
def replay(letters: Letters = None, *, all_: All = False, url: Url = None) -> None:
    """Send messages again to where they came from, when what they died of is repaired."""
    _each(letters, "sent again", Admin.replay_dead_letter, url, all_=all_)


@dlq.command()
def drop(letters: Letters = None, *, all_: All = False, url: Url = None) -> None:
    """Throw messages away."""
    _each(letters, "dropped", Admin.drop_dead_letter, url, all_=all_)


def _each(
    letters: list[int] | None,
    done: str,
    settle: Callable[[Admin, int], DeadLetterView],
    url: str | None,
    *,
    all_: bool,
) -> None:
    if bool(letters) == all_:
        raise BadRequest("name letters by their ids, or say --all")
    with Client(url) as client:
        for number in letters or [letter.id for letter in client.admin.dead_letters()]:
            letter = settle(client.admin, number)
            sys.stderr.write(f"{done}: {letter.id} ({letter.subject})\n")
