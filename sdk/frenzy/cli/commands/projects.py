"""``frenzy project | quota``."""

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError

from frenzy.cli import output
from frenzy.cli.options import Format, Output, Quiet, Url
from frenzy.client import Client
from frenzy_shared.messages.projects import ProjectSettings, ProjectView
from frenzy_shared.messages.wording import invalid_spec

Settings = dict[str, Any]  # of a project, as JSON

_ALL: Final = "all"  # stands for all kinds together
_NONE: Final = "none"  # takes a limit away

_PROJECTS: dict[str, Any] = {
    "project": lambda project: project.name,
    "weight": lambda project: f"{project.settings.weight:g}",
    "running": lambda project: project.running_jobs,
    "waiting": lambda project: project.waiting_jobs,
    "gpus": lambda project: sum(use.used for use in project.uses),
    "borrowed": lambda project: sum(use.borrowed for use in project.uses),
}

_QUOTAS: Final = ("project", "of", "used", "own", "borrowed", "limit")

Name = Annotated[
    str | None, typer.Argument(metavar="[PROJECT]", help="One project; without it, all of them.")
]
Limits = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND=N", help="Never more of a kind; all=N for all kinds together."),
]
Shares = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND=N", help="The project's own share; what it uses beyond is borrowed."
    ),
]
Most = Annotated[str | None, typer.Option(metavar="N", help="At most so many; none: no limit.")]


def project(
    name: Name = None,
    *,
    weight: Annotated[
        float | None, typer.Option(help="Its part in the fair share, beside the others'.")
    ] = None,
    quiet: Quiet = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Show projects, or set a project's part in the fair share."""
    changes = {} if weight is None else {"weight": weight}
    with Client(url) as client:
        views = _shown(client, name, lambda settings: {**settings, **changes} if changes else None)
    chosen = Format.NAME if quiet else output_
    output.write_list(views, chosen, _PROJECTS, name=lambda view: view.name)


def quota(
    name: Name = None,
    *,
    limit: Limits = None,
    nominal: Shares = None,
    max_running_jobs: Most = None,
    max_unfinished_jobs: Most = None,
    clear: Annotated[
        bool, typer.Option(help="Take all quotas of the project away first; its weight stays.")
    ] = False,
    output_: Output = Format.TABLE,
    url: Url = None,
) -> None:
    """Show or set what projects may use of the cluster.

    "none" instead of a number takes a quota away. A limit below what runs stops nothing; it holds
    for what starts.
    """
    devices = [("limit", text) for text in limit or ()]
    devices += [("nominal", text) for text in nominal or ()]
    jobs = {"max_running_jobs": max_running_jobs, "max_unfinished_jobs": max_unfinished_jobs}
    counts = {key: _count(text, key) for key, text in jobs.items() if text is not None}

    def change(settings: Settings) -> Settings | None:
        if not (devices or counts or clear):
            return None
        before = {"weight": settings["weight"]} if clear else settings
        return {**_with_devices(before, devices), **counts}

    with Client(url) as client:
        views = _shown(client, name, change)
    _write_quotas(views, output_)
    if devices or counts or clear:  # whoever only looks has read them before
        _say_notes(views)


def _shown(
    client: Client, name: str | None, change: Callable[[Settings], Settings | None]
) -> tuple[ProjectView, ...]:
    """Return one project, changed if there is a change, or all of them."""
    if name is None:
        if change(ProjectSettings().model_dump()) is not None:
            raise typer.BadParameter("name the project that is to change", param_hint="PROJECT")
        return client.projects()
    view = client.project(name)
    settings = change(view.settings.model_dump())
    if settings is None:
        return (view,)
    try:
        wanted = ProjectSettings.model_validate(settings)
    except ValidationError as error:
        raise invalid_spec(error, ProjectSettings) from None
    return (client.set_project(name, wanted),)


def _with_devices(settings: Settings, changes: list[tuple[str, str]]) -> Settings:
    """Return the settings with other quotas on devices; each change is (limit, "T4=8")."""
    devices = dict(settings.get("devices", {}))
    kinds = {kind: dict(quota) for kind, quota in settings.get("kinds", {}).items()}
    given = set()
    for key, text in changes:
        kind, equals, count = text.rpartition("=")
        if not equals or not kind:
            raise typer.BadParameter(f"{text!r} is not KIND=N", param_hint=f"--{key}")
        if (key, kind) in given:
            raise typer.BadParameter(f"{kind!r} is given twice", param_hint=f"--{key}")
        given.add((key, kind))
        quota = devices if kind == _ALL else kinds.setdefault(kind, {})
        quota[key] = _count(count, key)
    return {**settings, "devices": devices, "kinds": kinds}


def _count(text: str, key: str) -> int | None:
    if text == _NONE:
        return None
    if not text.isdecimal():
        option = f"--{key.replace('_', '-')}"
        raise typer.BadParameter(f"{text!r} is neither a number nor none", param_hint=option)
    return int(text)


def _write_quotas(views: tuple[ProjectView, ...], output_: Format) -> None:
    if output_ in (Format.JSON, Format.YAML):
        output.write_data([output.as_json(view) for view in views], output_)
    elif output_ is Format.NAME:
        sys.stdout.writelines(f"{view.name}\n" for view in views)
    else:
        rows = [row for view in views for row in _quota_rows(view)]
        output.out().print(output.rows_table(_QUOTAS, rows))


def _quota_rows(view: ProjectView) -> Iterator[tuple[object, ...]]:
    """Yield a line for each thing that is limited or used: what, used, own, borrowed, limit."""
    settings = view.settings
    used = {use.kind: use for use in view.uses}
    for kind in sorted({*settings.kinds, *used}):
        quota = settings.kinds.get(kind)
        held = used.get(kind)
        yield (
            view.name,
            kind,
            held.used if held else 0,
            quota.nominal if quota else None,
            held.borrowed if held else 0,
            quota.limit if quota else None,
        )
    total, devices = sum(use.used for use in view.uses), settings.devices
    yield (view.name, "all GPUs", total, devices.nominal, None, devices.limit)
    yield (view.name, "running jobs", view.running_jobs, None, None, settings.max_running_jobs)
    jobs = view.running_jobs + view.waiting_jobs
    yield (view.name, "unfinished jobs", jobs, None, None, settings.max_unfinished_jobs)


def _say_notes(views: tuple[ProjectView, ...]) -> None:
    for view in views:
        for note in view.notes:
            output.err().print(f"{view.name}: {note}", markup=False)
