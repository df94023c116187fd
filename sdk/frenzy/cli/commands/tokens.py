"""``frenzy token``: API tokens for people and programs."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from frenzy.cli import output
from frenzy.cli.groups import group
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import parse_duration_s

token = group()


class Who(StrEnum):
    """What a token allows; each may do what those before it may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


@token.callback()
def about() -> None:
    """Make API tokens for people and programs."""


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
        until = f"until {made.expires_at:%Y-%m-%d %H:%M} UTC" if made.expires_at else "for ever"
        sys.stderr.write(
            f"token {made.id} ({made.name}): {made.role} of {scope}, valid {until}; "
            "it is not shown again\n"
        )


def _seconds(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise Misconfigured(f"--expires: {error}") from None
