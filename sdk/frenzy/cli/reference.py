"""Write docs/reference/cli.md from the commands themselves.

``python -m frenzy.cli.reference > docs/reference/cli.md``; a test fails when the page is old.
"""

import contextlib
import io
import sys
from typing import Final

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
        for words in (name,), *((name, part) for part in _parts(name)):
            parts += [f"## frenzy {' '.join(words)}", f"```text\n{_help(*words)}\n```"]
    return "\n\n".join(parts) + "\n"


def _parts(name: str) -> list[str]:
    """Return the commands of a group; of a single command, none."""
    groups = [group.typer_instance for group in build({name}).registered_groups]
    commands = [command for group in groups if group for command in group.registered_commands]
    return [command.name or str(getattr(command.callback, "__name__", "")) for command in commands]


def _help(*words: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        build({words[0]})([*words, "--help"], prog_name="frenzy", terminal_width=_WIDTH)
    return text.getvalue().strip()


if __name__ == "__main__":
    sys.stdout.write(render())
