"""Lines for the job's log: what a person sees in ``frenzy logs``."""

import sys


def say(text: str) -> None:
    """Write one line to the standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write one line to the standard error, at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
