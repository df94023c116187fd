"""``frenzy admin backup`` and ``restore``: on the machine where `frenzy up` runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from frenzy.cli import output
from frenzy.cli.options import Quiet, Yes
from frenzy.local.layout import default_layout
from frenzy_shared.errors import InvalidState

Blobs = Annotated[bool, typer.Option("--blobs/--no-blobs", help="Bundles and data of jobs too.")]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, on another disk.")],
    *,
    blobs: Blobs = True,
    quiet: Quiet = False,
) -> None:
    """Back up this machine's cluster, while it runs: jobs, tokens, quotas, keys, bundles and data.

    It holds secrets: keep it as safe as the machine. Checkpoints, models and the event stream are
    not in it.
    """
    from frenzy.local.backup import back_up  # noqa: PLC0415 - --help loads nothing

    with output.steps("backing up", quiet=quiet) as progress:
        made = back_up(default_layout(), folder, progress, blobs=blobs)
    sys.stdout.write(f"{folder}\n")
    if not quiet:
        sys.stderr.write(f"backed up at {made.created}\n")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `frenzy admin backup` made.")],
    *,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Put a backup back, after `frenzy down`; the store comes back in SAFE MODE.

    The store that is here is moved aside. Identities and keys that are here stay; what is missing
    of them is added. After that: frenzy up, then frenzy admin reconcile.
    """
    from frenzy.local.restoring import restore as put_back  # noqa: PLC0415 - --help loads nothing

    layout = default_layout()
    if not yes:
        if not output.interactive():
            raise InvalidState(
                f"this replaces the store in {layout.root}", suggestions=("say so: --yes",)
            )
        typer.confirm(f"Replace the store in {layout.root}?", abort=True, err=True)
    with output.steps("restoring", quiet=quiet) as progress:
        aside = put_back(layout, folder, progress)
    sys.stdout.write(f"{layout.root}\n")
    if not quiet:
        kept = f"; the store that was here is {aside}" if aside else ""
        sys.stderr.write(f"restored{kept}\nnow: frenzy up, then frenzy admin reconcile\n")
