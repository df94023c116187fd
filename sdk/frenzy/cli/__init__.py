"""The frenzy command. Data goes to stdout, messages to stderr; see ``exits`` for exit codes."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from frenzy.cli.app import run  # noqa: PLC0415 - `import frenzy.cli` stays free of typer

    sys.exit(run(sys.argv[1:]))
