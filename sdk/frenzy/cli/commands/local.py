"""``frenzy up`` and ``frenzy down``."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from frenzy.cli import output
from frenzy.cli.options import Format, Output, Quiet
from frenzy.client import Client
from frenzy.exchange import Retry
from frenzy.local import again, control
from frenzy.local.drain import attempts_alive
from frenzy.local.layout import Layout, default_layout
from frenzy.local.options import (
    DEFAULT_BUS_PORT,
    DEFAULT_PORT,
    Options,
    default_nodes,
    parse_emulated,
    parse_listen,
    parse_replicas,
    parse_settings,
)
from frenzy.local.processes import ProcessMark
from frenzy.local.status import Phase, Status
from frenzy_shared.errors import FrenzyError, Unavailable


def up(
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where the API listens; 0 is any free port.")
    ] = DEFAULT_PORT,
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="This machine's address for other machines, with TLS; they join as nodes.",
        ),
    ] = "",
    bus_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Where NATS listens, with --listen.")
    ] = DEFAULT_BUS_PORT,
    emulated: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Emulated GPUs, <node>:<kind>:<count>:<memory>:<speed>;... "
            "Without it: this machine's NVIDIA GPUs, or three emulated nodes if there are none.",
        ),
    ] = None,
    replicas: Annotated[
        str, typer.Option(metavar="NAME=N,...", help="For example gateway=2,marp=2,scheduler=2.")
    ] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FRENZY_X=VALUE", help="Override a setting; repeatable."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach/--foreground", "-d", help="Go to the background when ready."),
    ] = True,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
) -> None:
    """Start everything on this machine.

    Servers, services and this machine's agent run in the background; no root, no Docker. Data is
    kept below $XDG_DATA_HOME/frenzy. A second `up` says what runs, and refuses other options.
    """
    layout = default_layout()
    layout.create()
    with control.exclusive(layout) as ours:
        if not ours:
            raise Unavailable("another `frenzy up` is starting it right now")
        status, supervisor = control.running(layout), None
        asked = Options(
            port=port,
            listen=parse_listen(listen),
            bus_port=bus_port,
            nodes={} if emulated is None else parse_emulated(emulated),
            replicas=parse_replicas(replicas),
            settings=parse_settings(set_ or ()),
        )
        last = control.last_options(layout)
        if status is None:
            control.prepare(layout, replace(asked, nodes=asked.nodes or default_nodes()))
            _warn_of_left_behind(again.left_behind(layout, asked, last))
            if not detach:
                _foreground(layout)
                return
            supervisor = control.start(layout)
        elif status.phase is Phase.STOPPING:
            raise Unavailable("it is stopping; try again when `frenzy down` is done")
        elif last is not None:
            again.require_same(asked, last, status.url)
        already = status is not None and status.phase is Phase.READY
        status = _wait_ready(layout, supervisor, quiet=quiet)
    control.remember_server(layout, status.url)
    _announce(layout, status, output_, quiet=quiet, already=already)


def down(
    *,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Leave running jobs' ranks alone.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Drain and stop what `frenzy up` started.

    Running jobs save a checkpoint and wait in the queue: the next `up` goes on with them.
    Nothing that is stored is removed.
    """
    layout = default_layout()
    with output.steps("stopping", quiet=quiet) as tell:
        stopped = control.stop(layout, tell, keep_jobs=keep_jobs)
    if not quiet:
        sys.stderr.write("stopped\n" if stopped else "nothing was running\n")
        if stopped and keep_jobs:
            nodes = (layout.root / "nodes").glob("*")
            sys.stderr.write(f"{len(attempts_alive(nodes))} attempts go on; next: frenzy up\n")


def _warn_of_left_behind(nodes: Sequence[str]) -> None:
    if nodes:
        text = (
            f"WARNING: nodes that have joined cannot reach this: {', '.join(nodes)}. The last up "
            "listened for them, this one does not: give --listen ADDRESS each time"
        )
        output.err().print(Text(text, style="bold yellow"))


def _wait_ready(
    layout: Layout, supervisor: "subprocess.Popen[bytes] | None", *, quiet: bool
) -> Status:
    """Wait and tell the steps; Ctrl-C stops what was being started."""
    try:
        with output.steps("starting", quiet=quiet) as tell:
            return control.wait_ready(layout, tell, supervisor)
    except KeyboardInterrupt:
        sys.stderr.write("stopping what was being started\n")
        control.abandon(layout, lambda _: None, supervisor)
        raise


def _foreground(layout: Layout) -> None:
    # The supervisor needs a package that a bare client does not have; `down` must work there too.
    from frenzy.local.supervisor import supervise  # noqa: PLC0415 - see above

    def ready(url: str) -> None:
        control.remember_server(layout, url)
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()

    sys.stderr.write(f"starting; logs: {layout.logs}; Ctrl-C stops everything\n")
    asyncio.run(supervise(layout, ready))


def _safe_mode(url: str) -> str:
    try:
        with Client(url, retry=Retry(attempts=1)) as client:
            return client.readiness().safe_mode
    except FrenzyError:  # what runs says so elsewhere
        return ""


def _announce(
    layout: Layout, status: Status, output_: Format, *, quiet: bool, already: bool
) -> None:
    if output_ in (Format.JSON, Format.YAML):
        children = [
            {"name": c.name, "pid": c.mark.pid if c.mark else None, "restarts": c.restarts}
            for c in status.children
        ]
        found = {"url": status.url, "logs": str(layout.logs), "processes": children}
        output.write_data(found, output_)
        return
    sys.stdout.write(f"{status.url}\n")
    if quiet:
        return
    console = output.err()
    console.print(f"Frenzy {'already runs' if already else 'is up'}. Logs: {layout.logs}")
    if why := _safe_mode(status.url):
        console.print(Text(f"SAFE MODE: {why}; see: frenzy admin reconcile", style="yellow"))
    rows = status.children
    console.print(
        output.table(
            {
                "process": [c.name for c in rows],
                "pid": [_pid(c.mark) for c in rows],
                "restarts": [c.restarts for c in rows],
            }
        )
    )
    console.print("next: frenzy nodes    frenzy submit -f job.yaml    frenzy down")
    if status.url.startswith("https:"):
        console.print(
            "another machine: frenzy node token here, then there frenzy node join " + status.url
        )


def _pid(mark: ProcessMark | None) -> str:
    return str(mark.pid) if mark is not None and mark.alive else "gone"
