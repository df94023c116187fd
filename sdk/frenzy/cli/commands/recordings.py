"""``frenzy admin record | replay``: scheduling cycles as files, run again without a cluster."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from frenzy.cli import output
from frenzy.cli.options import Format, Output, Url
from frenzy.client import Client
from frenzy_scheduler.recording import read
from frenzy_scheduler.replaying import Replay
from frenzy_scheduler.replaying import replay as run_again
from frenzy_shared.errors import BadRequest
from frenzy_shared.times import moment

Decision = Mapping[str, Any]


def record(
    *,
    file: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write them.")
    ],
    cycles: Annotated[int, typer.Option(min=1, max=100, help="This one, and those before it.")] = 1,
    url: Url = None,
) -> None:
    """Write what the scheduler decides now, and from what, into a file for `admin replay`.

    With --cycles also what it decided before; it remembers 8 cycles. With
    FRENZY_RECORD_CYCLES=<folder> it writes each one itself.
    """
    with Client(url) as client:
        data = client.record(cycles=cycles)
    try:
        file.write_bytes(data)
    except OSError as error:
        raise BadRequest(f"cannot write {file}: {error.strerror}") from error
    sys.stderr.write(f"{file} is written; run it again: frenzy admin replay {file}\n")


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording.")],
    *,
    policy: Annotated[
        str | None, typer.Option(help="What if this policy had decided: has, frenzy, ...")
    ] = None,
    output_: Output = Format.TABLE,
) -> None:
    """Run recorded cycles again, offline, and compare with what was decided.

    With --policy: what would another policy have decided from the same input? Without, the exit
    code is 1 when this version of Frenzy decides otherwise than the one that recorded.
    """
    try:
        text = file.read_bytes()
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from error
    runs = [run_again(cycle, policy) for cycle in read(text)]
    if output_ in (Format.JSON, Format.YAML):
        output.write_data([run.as_json() for run in runs], output_)
    elif output_ is Format.NAME:
        sys.stdout.writelines(f"{job}\n" for run in runs for job in run.differences)
    else:
        for run in runs:
            _show(run)
    if policy is None and any(run.differences for run in runs):
        raise typer.Exit(1)


def _show(run: Replay) -> None:
    changed = set(run.differences)
    console = output.out()
    console.print(Text(f"{moment(run.now_ms):%Y-%m-%d %H:%M:%S} UTC, policy {run.policy}", "bold"))
    if run.decisions:
        columns: dict[str, list[object]] = {
            "job": list(run.decisions),
            "decision": [_words(one) for one in run.decisions.values()],
        }
        if changed:
            columns[f"recorded under {run.recorded_policy}"] = [
                _recorded(run, job) if job in changed else "the same" for job in run.decisions
            ]
        console.print(output.table(columns))
    for job in sorted(changed - run.decisions.keys()):
        console.print(Text(f"{job}: left alone; recorded: {_words(run.recorded[job])}"))
    count = len({*run.decisions, *run.recorded})
    text = f"{len(changed)} of {count} decisions differ" if changed else "as it was recorded"
    console.print(Text(text, style="yellow" if changed else "green"))


def _recorded(run: Replay, job: str) -> str:
    return _words(run.recorded[job]) if job in run.recorded else "left alone"


def _words(decision: Decision) -> str:
    if decision["decision"] == "hold":
        return f"hold {decision['position']}: {decision['reason']}: {decision['message']}"
    placement = decision.get("placement")
    if placement is None:
        return str(decision["decision"])
    nodes = ", ".join(dict.fromkeys(device["node"] for device in placement["devices"]))
    devices = f"{len(placement['devices'])} x {placement['kind']} on {nodes}"
    return f"{decision['decision']}: {devices}, plan {placement['plan']}"
