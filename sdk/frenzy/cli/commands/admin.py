"""``frenzy admin``: what keeps the cluster itself right."""

import sys
from typing import Annotated

import typer

from frenzy.cli import exits, output
from frenzy.cli.commands import backups, deadletters, integrations, recordings
from frenzy.cli.groups import group
from frenzy.cli.options import Format, Output, Url
from frenzy.client import Client
from frenzy_shared.errors import InvalidState
from frenzy_shared.messages.v1 import Reconciliation

admin = group()

Apply = Annotated[bool, typer.Option("--apply", help="Put it right, and leave SAFE MODE.")]

Dead = Annotated[
    list[str] | None,
    typer.Option("--dead", metavar="NODE", help="It is switched off, I looked; repeatable."),
]


@admin.callback()
def about() -> None:
    """Back up, restore, put a store right; let programs follow events; dead letters; replays."""


admin.add_typer(integrations.integration, name="integration")
admin.add_typer(deadletters.dlq, name="dlq")
admin.command()(backups.backup)
admin.command()(backups.restore)
admin.command()(recordings.record)
admin.command()(recordings.replay)


@admin.command()
def reconcile(
    *,
    apply: Apply = False,
    dead: Dead = None,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Show what a store in SAFE MODE says wrongly, and what would become of it.

    Three sources are compared: the store's records, the event history, and what nodes run.
    A node that is gone for good keeps it from being applied until --dead names it.
    """
    with Client(url) as client:
        _show(client.admin.reconcile(apply=apply, dead=dead or ()), output_)


@admin.command()
def rebuild(*, apply: Apply = False, output_: Output = Format.TABLE, url: Url = None) -> None:
    """Do the same with an empty store: every job comes back from the event history."""
    with Client(url) as client:
        shown = client.admin.reconcile()
        kept = [d.entity for d in shown.differences if d.store != "unknown"]
        if any(entity.startswith("job:") for entity in kept):
            raise InvalidState(
                "the store is not empty: it has jobs of its own",
                suggestions=("compare and repair them: frenzy admin reconcile",),
            )
        _show(client.admin.reconcile(apply=True) if apply else shown, output_)


def _show(result: Reconciliation, chosen: Format) -> None:
    """Write the differences to stdout, and what that means to stderr."""
    if chosen in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(result), chosen)
    elif result.differences:
        columns = {
            "entity": lambda row: row.entity,
            "store": lambda row: row.store,
            "repair": lambda row: row.repair,
        }
        output.write_list(result.differences, chosen, columns, name=lambda row: row.entity)
    sys.stderr.write("".join(f"{line}\n" for line in _words(result)))
    if result.refused:
        raise typer.Exit(exits.Exit.ERROR)


def _words(result: Reconciliation) -> list[str]:
    if result.applied:
        return [f"put right: {result.count} differences; SAFE MODE is over"]
    if not result.safe_mode:
        return ["the store is not in SAFE MODE: there is nothing to put right"]
    lines = [f"SAFE MODE: {result.safe_mode}", f"{result.count} differences"]
    if len(result.differences) < result.count:
        lines.append(f"only the first {len(result.differences)} are shown")
    lines += [
        f"node {node} did not say yet what runs there: wait, or if switched off: --dead {node}"
        for node in result.silent
    ]
    if result.refused:
        lines.append(f"not applied: {result.refused}")
    else:
        lines.append("put it right: the same command with --apply")
    return lines
