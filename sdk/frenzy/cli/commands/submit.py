"""``frenzy plan`` and ``frenzy submit``."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from frenzy.cli import choice, exits, output, show, watching
from frenzy.cli.commands.estimate import plan_offline
from frenzy.cli.hints import WAIT_FOR_NODES
from frenzy.cli.options import File, FileArgument, Format, NoInput, Output, Project, Quiet, Url, Yes
from frenzy.client import Client
from frenzy.errors import NoFeasiblePlan
from frenzy.job import Job
from frenzy.specs import LocalSpec, localize, read
from frenzy_shared.domain.plan import PlanSet
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.http import ArrayView
from frenzy_shared.messages.yaml import load_yaml


def plan(
    path: FileArgument = None,
    *,
    file: File = None,
    cluster: Annotated[
        Path | None,
        typer.Option(help="Plan for this cluster file (YAML) instead, without a server."),
    ] = None,
    output_: Output = Format.TABLE,
    project: Project = "default",
    url: Url = None,
) -> None:
    """Show ranked plans for a job on this cluster. No side effects."""
    if cluster is not None:
        found, capacities = plan_offline(_spec(path, file).preview(), cluster)
        _write_plans(found, capacities, "", output_)
    else:
        with Client(url) as client:
            with output.err().status("planning"):
                found = client.plan(_spec(path, file), project=project)
            drawn = output_ in (Format.TABLE, Format.WIDE)
            capacities = show.capacities(client.nodes()) if drawn else {}
            policy = choice.policy_of(client) if drawn else ""
            _write_plans(found, capacities, policy, output_)
    if not found.feasible:
        raise typer.Exit(exits.Exit.INFEASIBLE)


def submit(
    path: FileArgument = None,
    *,
    file: File = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Do not follow the job's log.")
    ] = False,
    yes: Yes = False,
    no_input: NoInput = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the plan and stop.")
    ] = False,
    force_queue: Annotated[
        bool, typer.Option(help="Wait for new nodes when nothing can ever fit.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Submitting again under this key gives the same job.")
    ] = None,
    project: Project = "default",
    priority: Annotated[
        int | None, typer.Option(min=0, max=100, help="Instead of the job file's.")
    ] = None,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Submit a job and follow it.

    Shows the plan and asks before anything is created (-y, --no-input or no terminal: does not
    ask). Writes the job's id to stdout, then follows its log; Ctrl-C stops following, not the job.
    """
    with Client(url) as client:
        spec = _spec(path, file, priority)
        with output.err().status("planning"):
            found = client.plan(spec, project=project)
        if not quiet:
            capacities, policy = show.capacities(client.nodes()), choice.policy_of(client)
            output.err().print(show.plans(found, capacities, policy=policy))
        if not found.feasible and not force_queue:
            raise _infeasible(found)
        if dry_run:
            return
        if not (yes or no_input) and output.interactive():
            _confirm()
        with output.err().status("packing and sending"):
            many = spec.preview().array is not None
            send = client.submit_array if many else client.submit
            sent = send(
                spec, project=project, idempotency_key=idempotency_key, force_queue=force_queue
            )
        if isinstance(sent, ArrayView):
            _announce_array(sent, output_)
            return
        _announce(client, sent, output_, quiet=quiet)
        if not detach:
            watching.follow_to_end(sent, machine=output_ is not Format.TABLE, quiet=quiet)


def _announce_array(array: ArrayView, output_: Format) -> None:
    """Write the jobs' ids, and say how to find them again."""
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(array), output_)
    else:
        sys.stdout.writelines(f"{job}\n" for job in array.jobs)
    output.err().print(
        f"array {array.id}: {len(array.jobs)} jobs; frenzy list --label array={array.id}; "
        f"frenzy cancel --array {array.id}",
        markup=False,
    )


def _write_plans(found: PlanSet, capacities: dict[str, int], policy: str, output_: Format) -> None:
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(to_json(found), output_)
    elif output_ is Format.NAME:
        sys.stdout.writelines(f"{item.id}\n" for item in found.plans)
    else:
        limit = None if output_ is Format.WIDE else 3
        output.out().print(show.plans(found, capacities, policy=policy, limit=limit))


def _confirm() -> None:
    try:
        agreed = typer.confirm("Submit this job?", default=True, err=True)
    except typer.Abort:  # Ctrl-C or Ctrl-D
        sys.stderr.write("\ncancelled; nothing was submitted\n")
        raise typer.Exit(exits.Exit.INTERRUPTED) from None
    if not agreed:
        output.err().print("nothing was submitted")
        raise typer.Exit(exits.Exit.ERROR)


def _announce(client: Client, job: Job, output_: Format, *, quiet: bool) -> None:
    if output_ in (Format.JSON, Format.YAML):
        output.write_data(output.as_json(job.view), output_)
    else:
        sys.stdout.write(f"{job.id}\n")
    sys.stdout.flush()
    if not quiet:
        output.err().print(f"submitted {job.name} to {client.url}; next: frenzy describe {job.id}")


def _infeasible(found: PlanSet) -> NoFeasiblePlan:
    hints = tuple(f"change {pin}" for pin in dict.fromkeys(r.pin for r in found.refused) if pin)
    message = found.message or "no plan can ever fit this cluster"
    return NoFeasiblePlan(message, suggestions=(*hints, WAIT_FOR_NODES))


def _spec(path: str | None, option: str | None, priority: int | None = None) -> LocalSpec:
    """Read the job file, named as the argument or with -f; ``priority`` replaces the file's."""
    file = path if option is None else option
    if file is None:
        raise typer.BadParameter("name the job file: frenzy submit job.yaml", param_hint="FILE")
    if path is not None and option is not None:
        raise typer.BadParameter("name one job file, not a second one with -f", param_hint="FILE")
    if file == "-":
        found = localize(load_yaml(sys.stdin.read(), "<stdin>"), Path.cwd())
    else:
        found = read(file)
    if priority is None:
        return found
    return replace(found, document={**found.document, "priority": priority})
