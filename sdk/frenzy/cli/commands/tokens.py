"""``frenzy token``: API tokens for people and programs."""

import sys
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from frenzy.cli import output
from frenzy.cli.groups import group
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy_shared.auth import parse_token
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import parse_duration_s

_NODE: Final = "node"
_COLUMNS: Final[dict[str, Any]] = {
    "id": lambda one: one.id,
    "name": lambda one: one.name,
    "role": lambda one: one.role,
    "project": lambda one: one.project,
    "expires": lambda one: "expired" if one.expired else _minute(one.expires_at) or "never",
    "last used": lambda one: _minute(one.last_used_at) or "never",
}
_WIDE: Final[dict[str, Any]] = {"created": lambda one: _minute(one.created_at)}

token = group()


class Who(StrEnum):
    """What a token allows; each may do what those before it may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


@token.callback()
def about() -> None:
    """Make, list and revoke API tokens of people and programs."""


@token.command()
def create(
    *,
    role: Annotated[Who, typer.Option(help="Look; submit and cancel jobs; or everything.")],
    project: Annotated[
        str, typer.Option(help="The only project it is for; '*' is all of them.")
    ] = "default",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Whose it is; else the role. Jobs show it.")
    ] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid: 12h, 30d; else ever.")
    ] = None,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Make a token for FRENZY_TOKEN. It is shown this once, on standard output."""
    seconds = None if expires is None else _seconds(expires)
    with Client(url) as client:
        made = client.admin.create_token(
            role=role, project=project, name=name or role, expires_in_s=seconds
        )
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(made), output_)
        return
    sys.stdout.write(f"{made.token}\n")
    if not quiet:
        scope = "all projects" if made.project == "*" else f"project {made.project}"
        until = f"until {_minute(made.expires_at)}" if made.expires_at else "for ever"
        sys.stderr.write(
            f"token {made.id} ({made.name}): {made.role} of {scope}, valid {until}; "
            "it is not shown again\n"
        )


@token.command("list")
def list_(
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Those of nodes too.")] = False,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """List the tokens of the projects that you administer. Secrets are not shown to anybody."""
    with Client(url) as client:
        found = [one for one in client.admin.tokens() if nodes or one.role != _NODE]
    chosen = Format.NAME if quiet else output_
    output.write_list(found, chosen, _COLUMNS, wide=_WIDE, name=lambda one: one.id)


@token.command()
def revoke(
    tokens: Annotated[list[str], typer.Argument(metavar="ID...", help="Tokens' ids, not secrets.")],
    *,
    quiet: Quiet = False,
    url: Url = None,
) -> None:
    """Make tokens void, at once and for ever. Jobs that were submitted with them go on."""
    with Client(url) as client:
        for one in tokens:
            client.admin.revoke_token(_id(one))
            if not quiet:
                sys.stderr.write(f"token {_id(one)} is revoked\n")


def _id(text: str) -> str:
    """Return a token's id. A whole token is refused: it is in the shell's history now."""
    known = parse_token(text)
    if known is not None:
        raise Misconfigured(
            "this is a whole token, secret and all: give its id only",
            suggestions=(f"frenzy token revoke {known.id}",),
        )
    return text


def _minute(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC" if time else ""


def _seconds(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise Misconfigured(f"--expires: {error}") from None
