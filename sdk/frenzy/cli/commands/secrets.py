"""``frenzy secret``: what jobs may know and nobody else reads."""

import sys
from typing import Annotated, Any, Final

import typer

from frenzy.cli import output
from frenzy.cli.groups import group
from frenzy.cli.options import Format, NoInput, Output, Quiet, Url
from frenzy.client import Client
from frenzy_shared.errors import Misconfigured

_COLUMNS: Final[dict[str, Any]] = {
    "secret": lambda secret: secret.name,
    "updated": lambda secret: f"{secret.updated_at:%Y-%m-%d %H:%M} UTC",
}

secret = group()

Name = Annotated[str, typer.Argument(metavar="NAME", help="A secret's name.")]
Project = Annotated[str, typer.Option("--project", help="The project whose jobs may use it.")]


@secret.callback()
def about() -> None:
    """Set, list and delete secrets that jobs may use."""


@secret.command("set")
def set_(
    name: Name,
    *,
    project: Project = "default",
    quiet: Quiet = False,
    no_input: NoInput = False,
    url: Url = None,
) -> None:
    """Keep a secret under a name; one of the same name is replaced.

    The value is read from standard input (one newline at its end is dropped) or asked for: never
    from the command line, where others could read it. Nobody can read it back.
    """
    value = _ask_value(name, no_input=no_input)
    with Client(url) as client:
        made = client.secrets.set(name, value, project=project)
    if not quiet:
        sys.stderr.write(
            f"secret {made.name} of project {made.project} is set; in a job:\n"
            f"  secrets: {{VARIABLE: {made.name}}}\n"
        )


@secret.command("list")
def list_(
    *,
    project: Project = "default",
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """List a project's secrets by name. Their values are not shown to anybody."""
    with Client(url) as client:
        found = client.secrets.list(project=project)
    chosen = Format.NAME if quiet else output_
    output.write_list(found, chosen, _COLUMNS, name=lambda one: one.name)


@secret.command()
def delete(
    name: Name, *, project: Project = "default", quiet: Quiet = False, url: Url = None
) -> None:
    """Delete a secret. Jobs that run keep what they got; those that start later fail."""
    with Client(url) as client:
        client.secrets.delete(name, project=project)
    if not quiet:
        sys.stderr.write(f"secret {name} of project {project} is deleted\n")


def _ask_value(name: str, *, no_input: bool) -> str:
    value = ""
    if not sys.stdin.isatty():
        value = _piped()
    elif not no_input:
        value = typer.prompt(
            f"value of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    if not value:
        raise Misconfigured(
            "no value",
            suggestions=(f"write it to standard input: frenzy secret set {name} < FILE",),
        )
    return value


def _piped() -> str:
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise Misconfigured(
            "the value is not UTF-8 text, and becomes an environment variable",
            suggestions=("encode it: base64 FILE | frenzy secret set NAME",),
        ) from None
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
