"""``frenzy node``: make machines nodes of a cluster, and shut them out again."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from frenzy.cli import output
from frenzy.cli.groups import group
from frenzy.cli.options import Format, NoInput, Output, Quiet, Url
from frenzy.client import Client
from frenzy.local import joining
from frenzy.local.layout import default_layout
from frenzy.local.options import device_list, has_nvidia_gpus, host_name
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import parse_duration_s

_TOKEN = "FRENZY_NODE_TOKEN"  # noqa: S105 - the variable's name
_NO_GPU = (
    "no NVIDIA GPU was found: this node has nothing to run jobs on (frenzy doctor says why);\n"
    "  to try it out with an emulated one: --emulated emulated-a100:1:1GiB:1.0"
)

node = group()


@node.callback()
def _node() -> None:
    """Make machines nodes of a cluster, and shut them out again."""


Folder = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The node's files; else below $XDG_DATA_HOME."),
]
Emulated = Annotated[
    str,
    typer.Option(metavar="SPEC", help="Emulated GPUs: <kind>:<count>:<memory>:<speed>,..."),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Checkpoints, in a folder that all nodes share; else only this node can resume them.",
    ),
]
Address = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Where other nodes reach this one; else it is found.")
]


@node.command()
def token(
    *,
    node: Annotated[
        str, typer.Option("--node", metavar="NAME", help="The only name that may use it.")
    ] = "",
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="How long it is valid: 15m, 2h, 7d.")
    ] = "15m",
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Make a one-time token with which a machine becomes a node.

    With --node of a node that is known, it replaces that node's key.
    """
    try:
        seconds = parse_duration_s(expires)
    except ValueError as error:
        raise Misconfigured(f"--expires: {error}") from None
    with Client(url) as client:
        made = client.node_token(node=node, expires_in_s=seconds)
        server = client.url
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(made.model_dump(mode="json"), output_)
        return
    sys.stdout.write(f"{made.token}\n")
    if quiet:
        return
    output.err().print(
        f"valid once, until {made.expires_at:%Y-%m-%d %H:%M} UTC; on the other machine:\n"
        f"  frenzy node join {server}    (it asks for the token, or reads {_TOKEN})",
        markup=False,
        highlight=False,
    )


@node.command()
def join(
    server: Annotated[str, typer.Argument(metavar="URL", help="The cluster's https URL.")],
    *,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The node's name; else this machine's.")
    ] = "",
    data: Folder = None,
    emulated: Emulated = "",
    checkpoints: Checkpoints = None,
    address: Address = "",
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Run the agent at once.")
    ] = True,
    no_input: NoInput = False,
) -> None:
    """Make this machine a node of the cluster at URL, and run its agent.

    The one-time token (frenzy node token) is read from FRENZY_NODE_TOKEN, from standard input, or
    asked for: never from the command line, where others could read it. To run the agent again
    later: frenzy node run.
    """
    folder = joining.NodeFolder(data or default_layout().joined)
    devices = device_list(emulated)
    member = joining.join(folder, server, _ask_token(no_input=no_input), name or host_name())
    output.err().print(f"joined {member.url} as {member.node}; files: {folder.root}", markup=False)
    if start:
        _run(folder, member, devices, checkpoints, address)


@node.command()
def run(
    *,
    data: Folder = None,
    emulated: Emulated = "",
    checkpoints: Checkpoints = None,
    address: Address = "",
) -> None:
    """Run the agent of a machine that has joined. It ends with Ctrl-C or SIGTERM; ranks go on."""
    folder = joining.NodeFolder(data or default_layout().joined)
    devices = device_list(emulated)
    member = folder.read()
    if member is None:
        raise Misconfigured(
            f"this machine has not joined a cluster (nothing in {folder.root})",
            suggestions=("frenzy node join https://<cluster>:8642",),
        )
    _run(folder, member, devices, checkpoints, address)


@node.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")],
    *,
    quiet: Quiet = False,
    url: Url = None,
) -> None:
    """Shut a node out: its connections end at once, and its jobs stop within its time limit.

    Drain it first (frenzy nodes drain) to let its jobs go on elsewhere without loss.
    """
    with Client(url) as client:
        client.revoke_node(name)
    if not quiet:
        sys.stderr.write(f"{name} is shut out\n")


def _run(
    folder: joining.NodeFolder,
    member: joining.Membership,
    devices: str,
    checkpoints: Path | None,
    address: str,
) -> None:
    if not devices and not has_nvidia_gpus():
        output.err().print(_NO_GPU, markup=False, highlight=False)
    settings = {
        "FRENZY_EMULATED_DEVICES": devices,
        "FRENZY_CHECKPOINTS_DIR": str(checkpoints.absolute()) if checkpoints else "",
        "FRENZY_ADDRESS": address,
    }
    given = {name: text for name, text in settings.items() if text}
    joining.become_agent(folder, joining.agent_environment(folder, member, given))


def _ask_token(*, no_input: bool) -> str:
    text = os.environ.get(_TOKEN, "")
    if not text and not sys.stdin.isatty():
        text = sys.stdin.readline()
    elif not text and not no_input:
        text = typer.prompt("enrolment token", hide_input=True, err=True)
    if not text.strip():
        raise Misconfigured(
            "no enrolment token", suggestions=(f"set {_TOKEN}, or write it to standard input",)
        )
    return text
