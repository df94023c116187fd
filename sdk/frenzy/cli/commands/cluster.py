"""``frenzy nodes`` and ``frenzy version``."""

import os
import sys
from typing import Any

from rich.text import Text

import frenzy
from frenzy.cli import output, show
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy.errors import FrenzyError, Unreachable
from frenzy.exchange import Retry

_COLUMNS: dict[str, Any] = {
    "node": lambda node: node.id,
    "state": lambda node: node.state,
    "gpus": show.gpu_summary,
    "free": lambda node: sum(1 for d in node.devices if not d.owner and not d.problem),
    "jobs": lambda node: ", ".join(
        dict.fromkeys(d.owner for d in node.devices if d.owner and not d.owner.startswith("!"))
    ),
    "reason": lambda node: node.reason,
}
_WIDE: dict[str, Any] = {
    "address": lambda node: node.address,
    "epoch": lambda node: node.epoch,
    "emulated": lambda node: "yes" if any(d.emulated for d in node.devices) else "no",
    "problems": lambda node: "; ".join(d.problem for d in node.devices if d.problem),
    "quarantined": lambda node: ", ".join(
        f"{d.id} {d.owner}" for d in node.devices if d.owner.startswith("!")
    ),
}


def nodes(*, quiet: Quiet = False, output_: Output = Format.TABLE, url: Url = None) -> None:
    """List nodes and their GPUs."""
    with Client(url) as client:
        found = client.nodes()
    chosen = Format.NAME if quiet else output_
    output.write_list(found, chosen, _COLUMNS, wide=_WIDE, name=lambda node: node.id)
    if any(device.emulated for node in found for device in node.devices):
        output.err().print(Text("kinds named emulated-* are emulated on the CPU", style="dim"))


def version(*, output_: Output = Format.TABLE, url: Url = None) -> None:
    """Print versions."""
    server: str | None = None
    try:
        with Client(url, retry=Retry(attempts=1)) as client:
            server = client.version().version
    except Unreachable as error:
        chosen = bool(url or os.environ.get("FRENZY_URL"))
        text = error.message if chosen else "none running (frenzy up starts one)"
        output.err().print(Text(f"server: {text}", style="dim"))
    except FrenzyError as error:
        output.err().print(Text(f"server: {error.message}", style="dim"))
    if output_ in (Format.JSON, Format.YAML):
        output.write_data({"client": frenzy.__version__, "server": server}, output_)
    else:
        sys.stdout.write(f"frenzy {frenzy.__version__}\n")
        if server is not None:
            sys.stdout.write(f"server {server}\n")
