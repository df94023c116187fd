"""``frenzy admin integration``: programs that follow events, each with a key of its own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from frenzy.cli import output
from frenzy.cli.groups import group
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy.local.files import write_json
from frenzy.local.servers import deploy_folder
from frenzy_shared.errors import InvalidSpec, InvalidState, Misconfigured, NotFound
from frenzy_shared.files import write_private
from frenzy_shared.messages.integrations import IntegrationAccess

_KEY: Final = "key.nk"
_ABOUT: Final = "integration.json"
_EXAMPLE: Final = "follow.py"
_COLUMNS: Final[dict[str, Any]] = {
    "name": lambda one: one.name,
    "project": lambda one: one.project,
    "events": lambda one: ", ".join(one.events) or "all",
    "waiting": lambda one: one.waiting,
    "unacknowledged": lambda one: one.unacknowledged,
    "state": lambda one: (
        "consumer lost: rotate" if one.missing else "connected" if one.connected else "away"
    ),
}

integration = group()

Name = Annotated[str, typer.Argument(metavar="NAME", help="An integration's name.")]
Folder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where its files are written; else ./NAME."),
]


@integration.callback()
def about() -> None:
    """Let programs follow events on the bus, and shut them out again."""


@integration.command()
def create(
    name: Name,
    *,
    project: Annotated[
        str, typer.Option(help="The project whose events it gets; '*': all, nodes' too.")
    ] = "default",
    events: Annotated[
        str, typer.Option(metavar="KIND,...", help="Only these: job.failed, job.succeeded, ...")
    ] = "",
    history: Annotated[
        bool, typer.Option("--history", help="Begin with the oldest event that is kept.")
    ] = False,
    out: Folder = None,
    quiet: Quiet = False,
    url: Url = None,
) -> None:
    """Make a key and a durable consumer for a program that follows events.

    Writes what the program needs into a folder, with an example that runs: its key, which never
    leaves this machine, the server's address, and follow.py.
    """
    kinds = [kind.strip() for kind in events.split(",") if kind.strip()]
    folder = Path(name) if out is None else out
    with _new_key(folder) as public_key, Client(url) as client:
        access = client.integrations.create(
            name, public_key, project=project, events=kinds, history=history
        )
    _write(folder, access)
    _tell(folder, quiet=quiet)


@integration.command("list")
def list_(*, quiet: Quiet = False, output_: Output = Format.TABLE, url: Url = None) -> None:
    """List integrations and how many events wait for each."""
    with Client(url) as client:
        found = client.integrations.list()
    chosen = Format.NAME if quiet else output_
    output.write_list(found, chosen, _COLUMNS, name=lambda one: one.name)


@integration.command()
def rotate(name: Name, *, out: Folder = None, quiet: Quiet = False, url: Url = None) -> None:
    """Give an integration a new key, in a folder of its own. The old one is worthless at once.

    Its place among the events stays. A consumer that was lost with the bus's disk is made again.
    """
    folder = Path(name) if out is None else out
    with _new_key(folder) as public_key, Client(url) as client:
        access = client.integrations.rotate(name, public_key)
    _write(folder, access)
    _tell(folder, quiet=quiet)


@integration.command()
def revoke(name: Name, *, quiet: Quiet = False, url: Url = None) -> None:
    """Shut an integration out: its connections end at once, its place is forgotten."""
    with Client(url) as client:
        client.integrations.revoke(name)
    if not quiet:
        sys.stderr.write(f"integration {name} is revoked\n")


@contextmanager
def _new_key(folder: Path) -> Iterator[str]:
    """Make a key in a folder that has none, and give its public half.

    A key that is refused is not left behind; one whose answer was lost is, for another try.
    """
    from frenzy_shared.bus import keys  # noqa: PLC0415 - a bare client has no nkeys

    if (folder / _ABOUT).exists():
        raise InvalidState(
            f"{folder} holds the files of an integration already",
            suggestions=("choose another folder: --out DIR",),
        )
    known, begun = (folder / _KEY).exists(), folder.exists()
    try:
        public_key = keys.load_or_make(folder / _KEY)
    except OSError as error:
        raise Misconfigured(f"cannot write {folder}: {error.strerror}") from None
    try:
        yield public_key
    except (InvalidSpec, InvalidState, NotFound):
        if not known:
            (folder / _KEY).unlink()
        if not begun:
            folder.rmdir()
        raise


def _write(folder: Path, access: IntegrationAccess) -> None:
    """Write what goes with the key. The key alone was there before: a retry goes on with it."""
    if access.authority:
        write_private(folder / "ca.pem", access.authority)
    example = deploy_folder() / "nats" / _EXAMPLE
    write_private(folder / _EXAMPLE, example.read_text(encoding="utf-8"))
    write_json(folder / _ABOUT, access.model_dump(mode="json", exclude={"authority"}))


def _tell(folder: Path, *, quiet: bool) -> None:
    sys.stdout.write(f"{folder}\n")
    if not quiet:
        sys.stderr.write(
            f"valid within a second; keep {folder / _KEY} secret. Try it out:\n"
            f"  python {folder / _EXAMPLE} {folder}\n"
        )
