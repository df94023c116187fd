"""The frenzy command. Data goes to stdout, messages to stderr; see ``exits`` for exit codes."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from frenzy.cli.app import run  # noqa: PLC0415 - `import frenzy.cli` stays free of typer

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # also while modules are imported, before a command can catch it
        code = 130
    sys.exit(code)
