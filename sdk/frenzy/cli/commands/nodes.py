"""``frenzy nodes``: look at nodes, take them out of service, give them back."""

import sys
import time
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from frenzy.cli import closed, output, show
from frenzy.cli.groups import group
from frenzy.cli.options import Format, Output, Quiet, Url, Yes
from frenzy.client import Client
from frenzy.errors import FrenzyError
from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.errors import BadRequest
from frenzy_shared.messages.http import NodeView
from frenzy_shared.units import parse_duration_s

_COLUMNS: dict[str, Any] = {
    "node": lambda node: node.id,
    "state": lambda node: node.state,
    "gpus": show.gpu_summary,
    "free": lambda node: len(_free(node)),
    "jobs": lambda node: ", ".join(_jobs(node)),
    "reason": lambda node: "; ".join(_reasons(node)),
}
_WIDE: dict[str, Any] = {
    "address": lambda node: node.address,
    "epoch": lambda node: node.epoch,
    "emulated": lambda node: "yes" if any(d.emulated for d in node.devices) else "no",
}
_POLL_S: Final = 1.0

nodes = group(no_args_is_help=False)

Node = Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")]


@nodes.callback(invoke_without_command=True)
def list_nodes(
    ctx: typer.Context, *, quiet: Quiet = False, output_: Output = Format.TABLE, url: Url = None
) -> None:
    """List nodes and their GPUs, or take them out of service.

    REASON also says which GPUs cannot be used, and why.
    """
    if ctx.invoked_subcommand is not None:
        return
    with Client(url) as client:
        found = client.nodes()
        closed.look(client)
    chosen = Format.NAME if quiet else output_
    output.write_list(found, chosen, _COLUMNS, wide=_WIDE, name=lambda node: node.id)
    shown = chosen in (Format.TABLE, Format.WIDE) and output.interactive()
    if shown and any(device.emulated for node in found for device in node.devices):
        output.err().print(Text("kinds named emulated-* are emulated on the CPU", style="dim"))


@nodes.command()
def drain(
    node: Node,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why, for those who look.")] = "",
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Stop what still runs then: 1s, 30m, 2h."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing runs there.")] = False,
    url: Url = None,
) -> None:
    """Give a node no new work. Its jobs finish there, or go on elsewhere after --deadline."""
    deadline_s = None if deadline is None else _seconds(deadline)
    with Client(url) as client:
        view = client.admin.drain(node, reason=reason, deadline_s=deadline_s)
        _tell(view)
        while wait and (jobs := _jobs(view)):
            sys.stderr.write(f"waiting for {', '.join(jobs)}\n")
            time.sleep(_POLL_S)
            view = next(found for found in client.nodes() if found.id == node)


@nodes.command()
def undrain(node: Node, *, url: Url = None) -> None:
    """Let a drained node have work again."""
    with Client(url) as client:
        _tell(client.admin.undrain(node))


@nodes.command("confirm-dead")
def confirm_dead(node: Node, *, yes: Yes = False, url: Url = None) -> None:
    """Say that nothing runs on a silent node: its jobs start elsewhere without waiting.

    Look first. If ranks still run there, their job would run twice.
    """
    if not yes:
        if not output.interactive():
            raise BadRequest("this needs your word that nothing runs there: give --yes")
        typer.confirm(f"Is {node} switched off, so that nothing of any job runs there?", abort=True)
    with Client(url) as client:
        _tell(client.admin.confirm_dead(node))


@nodes.command()
def forget(node: Node, *, url: Url = None) -> None:
    """Remove a node that is gone for ever from all lists. It must be LOST and hold nothing.

    It may join again later. To shut it out: frenzy node revoke.
    """
    with Client(url) as client:
        client.admin.forget_node(node)
    sys.stderr.write(f"node {node} is forgotten\n")


def _tell(node: NodeView) -> None:
    why = node.drain or node.reason
    sys.stderr.write(f"node {node.id} is {node.state}{f': {why}' if why else ''}\n")


def _free(node: NodeView) -> list[str]:
    """Return the GPUs that a job could get: none of a node that gets no work."""
    if node.state != NodeState.UP:
        return []
    return [device.id for device in node.devices if not device.owner and not device.problem]


def _jobs(node: NodeView) -> list[str]:
    owners = (device.owner for device in node.devices)
    return list(dict.fromkeys(owner for owner in owners if owner and not owner.startswith("!")))


def _reasons(node: NodeView) -> list[str]:
    """Return why a node, and each of its GPUs, cannot be used."""
    about = dict.fromkeys(text for text in (node.reason, node.drain) if text)
    broken = [f"{d.id}: {d.problem}" for d in node.devices if d.problem]
    kept = [
        f"{d.id} is quarantined: {d.owner.removeprefix('!quarantine:')}"
        for d in node.devices
        if d.owner.startswith("!")
    ]
    return [*about, *broken, *kept]


def _seconds(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise FrenzyError(f"--deadline: {error}", suggestions=("write 90s, 30m or 2h",)) from None
