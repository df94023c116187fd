"""A rank that only proves where and when it lived: run as a job's script, standard library only.

With TEST_MEET the ranks of a gang meet first, where their environment says: rank 0 listens at
MASTER_ADDR:MASTER_PORT, every other one says its number and hears an answer. A rank ends early
when the file that TEST_END names is there.

As the trainer of its node (TEST_TRAINER of the agent) it waits for its release where it is to,
reports a step at every sign of life, and saves an empty checkpoint when it is stopped.

It holds an exclusive lock on its device's file, which is independent of Frenzy's own locks, and
appends signs of life to a file of its own. Times are CLOCK_BOOTTIME and the wall clock.
"""

import fcntl
import json
import os
import pathlib
import signal
import socket
import sys
import time

_MEET_S = 20.0
_TICK_S = 0.05
_SAVING_TICKS = 8
_STOPPED = 143  # what a rank says that has saved and left as it was asked to


def main() -> None:
    """Live for a while and write it down under TEST_RECORDS."""
    records = pathlib.Path(os.environ["TEST_RECORDS"])
    folder = pathlib.Path(os.environ["FRENZY_ATTEMPT_FOLDER"])
    node, rank = folder.parents[1].name, int(os.environ["RANK"])
    resumed = await_release()
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
        say(file, "start", **about, node=node, device=device, contested=contested, resumed=resumed)
        if "TEST_MEET" in os.environ:
            say(file, "met", peers=meet(rank, int(os.environ["WORLD_SIZE"])))
        seconds = "TEST_SECONDS" if plan["attempt"] == 1 else "TEST_LATER_SECONDS"
        code = live(file, float(os.environ[seconds]), resumed) or int(
            os.environ.get("TEST_EXIT", "0")
        )
        say(file, "stop")
    sys.exit(code)


def meet(rank: int, size: int) -> dict[int, str]:
    """Exchange a word with the other ranks; return their addresses, as rank 0 sees them."""
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank != 0:
        with dial(where) as one, one.makefile("rw") as words:
            words.write(f"{rank}\n")
            words.flush()
            return {0: one.getpeername()[0]} if words.readline() == "welcome\n" else {}
    peers = {}
    with socket.create_server(where) as door:
        door.settimeout(_MEET_S)
        while len(peers) < size - 1:
            one, address = door.accept()
            with one, one.makefile("rw") as words:
                peers[int(words.readline())] = address[0]
                words.write("welcome\n")
    return peers


def dial(where) -> socket.socket:
    """Connect as soon as rank 0 listens: nobody says which rank starts first."""
    until = time.monotonic() + _MEET_S
    while True:
        try:
            return socket.create_connection(where, timeout=_MEET_S)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(_TICK_S)


def await_release() -> int:
    """Wait as long as the agent wants; return the step to go on from."""
    resume_from = os.environ.get("FRENZY_RESUME_FROM", "")
    if release := os.environ.get("FRENZY_RELEASE_FILE"):
        report("warm")
        while not os.path.exists(release):
            time.sleep(_TICK_S)
        resume_from = json.loads(pathlib.Path(release).read_text())["resume_from"]
    return int(resume_from.rpartition("-")[2]) if resume_from else 0


def live(file, seconds: float, step: int) -> int:
    """Show signs of life; after SIGTERM go on for a while, as one does who saves."""
    terms: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    until, end = time.monotonic() + seconds, pathlib.Path(os.environ.get("TEST_END", "/no/end"))
    while not terms and time.monotonic() < until and not end.exists():
        time.sleep(_TICK_S)
        say(file, "alive")
        step += 1
        report("step", step=step, loss=1.0)
    for _ in range(_SAVING_TICKS if terms else 0):
        time.sleep(_TICK_S)
        say(file, "alive")
    if terms and os.environ["RANK"] == "0":
        saved = pathlib.Path(os.environ["FRENZY_CHECKPOINT_DIR"], f"step-{step}")
        saved.mkdir(parents=True, exist_ok=True)
        report("checkpoint", step=step)
    return _STOPPED if terms else 0


def report(kind: str, **fields: object) -> None:
    """Tell the agent, as the built-in trainer does."""
    if "TEST_TRAINS" in os.environ:
        with open(os.environ["FRENZY_REPORT_FILE"], "a") as file:
            file.write(json.dumps({"kind": kind, **fields}) + "\n")


def say(file, kind: str, **fields: object) -> None:
    boot_s, wall_ms = time.clock_gettime(time.CLOCK_BOOTTIME), time.time() * 1000
    file.write(json.dumps({"kind": kind, "boot_s": boot_s, "wall_ms": wall_ms, **fields}) + "\n")


if __name__ == "__main__":
    main()
