"""``python -m frenzy_orchestrator.shim <attempt folder>``."""

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Final

from frenzy_orchestrator.shim.gang import Gang
from frenzy_orchestrator.shim.launch import RUN, read_launch

_REFUSED: Final = 3


def main(arguments: list[str]) -> int:
    """Keep the attempt in the folder; refuse a second launch of the same folder."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m frenzy_orchestrator.shim <attempt folder>\n")
        return 2
    folder = Path(arguments[0]).absolute()
    os.chdir("/")  # keep no folder busy
    lock = os.open(folder / "shim.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"{folder}: another shim keeps this attempt\n")
        return _REFUSED
    if (folder / RUN).exists():
        sys.stderr.write(f"{folder}: this attempt was started before; an attempt runs once\n")
        return _REFUSED
    launch = read_launch(folder)
    if launch is None:
        sys.stderr.write(f"{folder}: no readable launch.json\n")
        return _REFUSED
    Gang(folder, launch, take_secrets()).run()
    return 0


def take_secrets() -> dict[str, str]:
    """Read the ranks' secrets from standard input, and put nothing in its place."""
    with os.fdopen(0, "rb", closefd=False) as given:
        data = given.read()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return dict(json.loads(data)) if data else {}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
