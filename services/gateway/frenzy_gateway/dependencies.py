"""Which jobs a new one waits for: names and ids of its specification, found in the store.

Only jobs that were accepted before can be named, so dependencies never form a cycle.
"""

import difflib
from typing import Final

from frenzy_shared.domain.ids import JobId, ProjectName, is_name
from frenzy_shared.domain.job import TERMINAL, JobRecord, JobState
from frenzy_shared.errors import InvalidSpec, wrong_field
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.state.port import StateStore

_PAGE: Final = 200
_PAGES: Final = 5  # how far back a name is looked for


async def find_dependencies(
    state: StateStore, project: ProjectName, spec: JobSpec, job: JobId
) -> tuple[JobId, ...]:
    """Return the ids of the jobs that ``job`` depends on, each once.

    Raises:
        InvalidSpec: naming a job that there is not, that did not succeed, or the job itself.
    """
    found: dict[JobId, None] = {}
    newest: dict[str, JobRecord] | None = None
    for number, text in enumerate(spec.depends_on):
        pointer = f"/depends_on/{number}"
        if text == job:
            raise wrong_field(pointer, "a job cannot depend on itself")
        record = await state.job(JobId(text)) if is_name(text) else None
        if record is None or record.project != project:
            newest = newest or await _newest_by_name(state, project)
            record = newest.get(text)
        if record is None:
            raise _unknown(pointer, text, project, newest or {})
        if spec.depends_on_end == "success" and _failed(record):
            detail = f"job {record.name} ({record.id}) is {record.state}: this could never start"
            raise wrong_field(pointer, detail, ("depends_on_end: any waits for any end",))
        found[record.id] = None
    return tuple(found)


def _failed(record: JobRecord) -> bool:
    return record.state in TERMINAL and record.state is not JobState.SUCCEEDED


async def _newest_by_name(state: StateStore, project: ProjectName) -> dict[str, JobRecord]:
    """Return the newest job of each name among the project's latest."""
    newest: dict[str, JobRecord] = {}
    token = ""
    for _ in range(_PAGES):
        page = await state.list_jobs(
            project=project, states=frozenset(), page_size=_PAGE, page_token=token, labels={}
        )
        for record in page.jobs:
            newest.setdefault(record.name, record)
        token = page.next_token
        if not token:
            break
    return newest


def _unknown(
    pointer: str, text: str, project: ProjectName, newest: dict[str, JobRecord]
) -> InvalidSpec:
    close = difflib.get_close_matches(text, newest, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    detail = f"project {project} has no job {text[:80]!r}, by id or name{hint}"
    return wrong_field(pointer, detail, (f"list its jobs: frenzy list --project {project}",))
