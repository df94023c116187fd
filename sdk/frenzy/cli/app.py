"""The command tree. A command's module is imported only when that command runs."""

import logging
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from frenzy import extras
from frenzy.cli import exits
from frenzy.cli.groups import PLAIN
from frenzy.cli.hints import hints
from frenzy_shared.errors import FrenzyError

# name -> ("module:function" below frenzy.cli.commands, the first line of its docstring)
COMMANDS: Final = {
    "up": ("local:up", "Start everything on this machine."),
    "down": ("local:down", "Drain and stop what `frenzy up` started."),
    "demo": ("demo:demo", "Train four real jobs on an emulated mixed cluster and watch them."),
    "estimate": (
        "estimate:estimate",
        "Predict the memory of training a model, by term and by moment. Needs no server.",
    ),
    "plan": ("submit:plan", "Show ranked plans for a job on this cluster. No side effects."),
    "submit": ("submit:submit", "Submit a job and follow it."),
    "list": ("jobs:list_", "List jobs, newest first."),
    "get": ("jobs:get", "Show one job's fields."),
    "describe": ("jobs:describe", "Show a job's whole story: timeline, placement, memory."),
    "explain": ("jobs:explain", "Say why a job waits, or why it runs as it does."),
    "logs": ("follow:logs", "Show what a job's ranks wrote."),
    "events": ("follow:events", "Show a job's events."),
    "wait": ("jobs:wait", "Wait until jobs are over; the exit code is the outcome."),
    "cancel": ("jobs:cancel", "Cancel jobs."),
    "queue": ("queue:queue", "Show who waits, why, and when each job will start and end."),
    "hold": ("jobs:hold", "Keep waiting jobs from starting until they are released."),
    "release": ("jobs:release", "Let jobs that were held back start again."),
    "project": ("projects:project", "Show projects, or set a project's part in the fair share."),
    "quota": ("projects:quota", "Show or set what projects may use of the cluster."),
    "secret": ("secrets:secret", "Set, list and delete secrets that jobs may use."),
    "token": ("tokens:token", "Make, list and revoke API tokens of people and programs."),
    "init": ("init:init", "Create the streams on the NATS server that FRENZY_NATS_URL names."),
    "node": ("node:node", "Make machines nodes of a cluster, and shut them out again."),
    "nodes": ("nodes:nodes", "List nodes and their GPUs, or take them out of service."),
    "admin": (
        "admin:admin",
        "Back up, restore, put a store right; let programs follow events; dead letters; replays.",
    ),
    "simulate": (
        "simulate:simulate",
        "Compare scheduling policies on a trace or a generated workload.",
    ),
    "doctor": ("doctor:doctor", "Check this machine and say what to do about problems."),
    "version": ("cluster:version", "Print versions."),
}


def build(wanted: Collection[str]) -> typer.Typer:
    """Make the command tree. Only the ``wanted`` commands are imported; of others it has a line."""
    tree = _typer()
    tree.callback()(_root)
    for name, (where, line) in COMMANDS.items():
        if name in wanted:
            module, _, function = where.partition(":")
            command = getattr(import_module(f"frenzy.cli.commands.{module}"), function)
            if isinstance(command, typer.Typer):  # a group: several commands under one word
                tree.add_typer(command, name=name)
            else:
                tree.command(name)(command)
        else:
            tree.command(name, help=line)(_root)
    return tree


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code. A known error is one line and hints."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    try:
        build({wanted})(list(arguments), prog_name="frenzy")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(exits.Exit.ERROR)
    except FrenzyError as error:
        say_error(error)
        return exits.of_error(error)
    except ModuleNotFoundError as error:
        if not extras.is_optional(error.name):
            raise
        say_error(extras.not_installed([error.name or ""]))
        return exits.Exit.ERROR
    return exits.Exit.OK


def say_error(error: FrenzyError) -> None:
    """Write an error for a person: what is wrong, then what to do."""
    lines = [f"error: {error.message}"]
    if len(error.problems) > 1:
        lines += [f"  {item.pointer or '/'}: {item.detail}" for item in error.problems]
    lines += [f"  try: {hint}" for hint in hints(error)]
    sys.stderr.write("\n".join(lines) + "\n")


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer keeps its context's class to itself
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # the validator's words before typer's own
            error.message = error.message.removeprefix("Value error, ")
            raise


def _typer() -> typer.Typer:
    return typer.Typer(cls=_Commands, no_args_is_help=True, **PLAIN)


def _root() -> None:
    """Submit a model. Don't pick GPUs.

    Frenzy predicts how much memory training takes, chooses GPUs of this cluster and the
    parallelism, trains, and says why. Begin with: frenzy demo
    """
