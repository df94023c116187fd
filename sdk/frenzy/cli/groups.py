"""How every part of the command tree behaves."""

from typing import Any, Final

import typer

# Plain help and errors: importing rich would cost a third of the time that --help may take.
PLAIN: Final[dict[str, Any]] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def group(*, no_args_is_help: bool = True) -> typer.Typer:
    """Return an empty group: several commands under one word."""
    return typer.Typer(no_args_is_help=no_args_is_help, **PLAIN)
