"""Write docs/reference/cli.md from the commands themselves.

``python -m frenzy.cli.reference > docs/reference/cli.md``; a test fails when the page is old.
"""

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Final

import typer

from frenzy.cli.app import COMMANDS, build
from frenzy.cli.exits import Exit

_WIDTH: Final = 90
_MEANINGS: Final = {
    Exit.OK: "done; a followed job succeeded",
    Exit.ERROR: "an error; stderr says which and what to do",
    Exit.USAGE: "the command line is wrong",
    Exit.FAILED: "the job FAILED",
    Exit.NOT_FINISHED: "the job is not finished",
    Exit.NOT_FOUND: "no such job",
    Exit.CANCELLED: "the job was CANCELLED",
    Exit.INFEASIBLE: "no plan can ever fit this cluster",
    Exit.UNREACHABLE: "the server cannot be reached or used now, or --timeout passed",
    Exit.INTERRUPTED: "Ctrl-C; a job that was followed goes on",
}


def render() -> str:
    """Return the page."""
    parts = [
        "# The frenzy command",
        "<!-- Made by `python -m frenzy.cli.reference`; do not edit. -->",
        (
            "Data goes to stdout, messages to stderr. The server is `--url`, else `FRENZY_URL`, "
            "else what `frenzy up` wrote to `$XDG_CONFIG_HOME/frenzy/config.toml`; the token is "
            "`FRENZY_TOKEN`, else that file's. `NO_COLOR` switches colours off."
        ),
        "## Exit codes",
        "| code | meaning |\n|---|---|\n"
        + "\n".join(f"| {code.value} | {text} |" for code, text in _MEANINGS.items()),
    ]
    for name in COMMANDS:
        for words in (name,), *_parts(name):
            parts += [f"## frenzy {' '.join(words)}", f"```text\n{_help(*words)}\n```"]
    return "\n\n".join(parts) + "\n"


def _parts(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command of a group, groups within it too; of one command, none."""
    for group in build({name}).registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, (name,))


def _commands(group: typer.Typer, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for command in group.registered_commands:
        yield (*words, command.name or str(getattr(command.callback, "__name__", "")))
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from _commands(inner.typer_instance, (*words, str(inner.name)))


def _help(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        build({words[0]})([*words, "--help"], prog_name="frenzy", terminal_width=_WIDTH)
    return text.getvalue().strip()


if __name__ == "__main__":
    sys.stdout.write(render())
