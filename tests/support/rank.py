"""A rank that only proves where and when it lived: run as a job's script, standard library only.

It holds an exclusive lock on its device's file, which is independent of Frenzy's own locks, and
appends signs of life to a file of its own. Times are CLOCK_BOOTTIME and the wall clock.
"""

import fcntl
import json
import os
import pathlib
import signal
import sys
import time

_TICK_S = 0.05
_SAVING_TICKS = 8
_STOPPED = 143  # what a rank says that has saved and left as it was asked to


def main() -> None:
    """Live for a while and write it down under TEST_RECORDS."""
    records = pathlib.Path(os.environ["TEST_RECORDS"])
    folder = pathlib.Path(os.environ["FRENZY_ATTEMPT_FOLDER"])
    node, rank = folder.parents[1].name, int(os.environ["RANK"])
    plan = json.loads(pathlib.Path(os.environ["FRENZY_PLAN"]).read_text())
    device = next(d["device"] for d in plan["rank_devices"] if d["rank"] == rank)
    name = f"{plan['job']}.{plan['attempt']}.{rank}.{os.getpid()}"
    with (
        (records / f"{node}.{device}.lock").open("a") as lock,
        (records / f"{name}.jsonl").open("a", buffering=1) as file,
    ):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            contested = False
        except BlockingIOError:
            contested = True
        about = {"job": plan["job"], "attempt": plan["attempt"], "rank": rank}
        say(file, "start", **about, node=node, device=device, contested=contested)
        seconds = "TEST_SECONDS" if plan["attempt"] == 1 else "TEST_LATER_SECONDS"
        code = live(file, float(os.environ[seconds]))
        say(file, "stop")
    sys.exit(code)


def live(file, seconds: float) -> int:
    """Show signs of life; after SIGTERM go on for a while, as one does who saves."""
    terms: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    until = time.monotonic() + seconds
    while not terms and time.monotonic() < until:
        time.sleep(_TICK_S)
        say(file, "alive")
    for _ in range(_SAVING_TICKS if terms else 0):
        time.sleep(_TICK_S)
        say(file, "alive")
    return _STOPPED if terms else 0


def say(file, kind: str, **fields: object) -> None:
    boot_s, wall_ms = time.clock_gettime(time.CLOCK_BOOTTIME), time.time() * 1000
    file.write(json.dumps({"kind": kind, "boot_s": boot_s, "wall_ms": wall_ms, **fields}) + "\n")


if __name__ == "__main__":
    main()
